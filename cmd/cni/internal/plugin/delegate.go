package plugin

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/ipam"
	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/rtnl"
)

// delegated tells whether another IPAM plugin gives the addresses.
func (t *task) delegated() bool { return t.Config.IPAM != "" }

// ipam is that plugin, ready to be called as this one was. That it is not there is a fault of the configuration, but for a
// DEL, which fails only when another try can help.
func (t *task) ipam() (ipam.Plugin, error) {
	p, fault := ipam.Find(t.Config.IPAM, t.Path)
	broken := spec.TryAgain
	if t.Command == "STATUS" {
		broken = spec.NotAvailable
	}
	switch {
	case fault == nil:
		p.Env, p.Stdin, p.Stderr, p.Broken = t.io.Environ(), t.Stdin, fileOf(t.io.Stderr), broken
		if t.ContainerID != "" {
			p.Turn = v1.HostInterfaceName(t.ContainerID, t.IfName)
		}
		return p, nil
	case t.Command == "DEL", t.Command == "STATUS":
		fault.Code = broken
	}
	return p, fault
}

// fileOf is the descriptor of the file that is written to; without one it is that of the process.
func fileOf(w io.Writer) int {
	if file, ok := w.(interface{ Fd() uintptr }); ok {
		return int(file.Fd())
	}
	return unix.Stderr
}

// findIPAM comes before anything is done.
func (a *adding) findIPAM() (err error) {
	if a.delegated() {
		a.plugin, err = a.ipam()
	}
	return err
}

// allocate has the IPAM plugin give addresses. It comes after the link, as one that speaks DHCP does that over the link.
// What it gave when it failed it takes back.
func (a *adding) allocate() (err error) {
	if !a.delegated() {
		return nil
	}
	a.noteOnLink() // before the addresses are this life's
	if err := a.openLink(); err != nil {
		return err
	}
	if a.given, err = a.plugin.Add(a.deadline); err == nil {
		err = a.checkGiven()
	}
	if err != nil {
		a.giveBack()
	}
	return err
}

// giveBack has the IPAM plugin take back what it gave to the attachment, in whatever life: so first nothing may use it any
// more, neither an endpoint of an earlier ADD nor the link. That of a later ADD keeps its addresses.
func (a *adding) giveBack() {
	if !a.delegated() {
		return
	}
	result := a.deleteBegan(a.began.boot)
	if result.Spared > 0 || a.overtaken() {
		return
	}
	a.removeLink()
	if err := a.plugin.Call("DEL", time.Now().Add(undoTimeout)); err != nil {
		_, _ = fmt.Fprintf(a.io.Stderr, "porin-cni: ADD of %s:%s has failed, and so has the undo: %v\n", a.ContainerID, a.IfName, err)
	}
}

// overtaken tells whether the link is by now one of a later ADD.
func (a *adding) overtaken() bool {
	var host rtnl.Link
	return a.node.Do(rtnl.LinkByName(a.hostName, &host)) == nil && bornAfter(host, a.began.boot)
}

// dialAgain replaces a connection that the agent may have closed while the IPAM plugin was at work.
func (a *adding) dialAgain() error {
	if !a.delegated() {
		return nil
	}
	a.conn.Close()
	a.conn = nil
	return a.dial()
}
