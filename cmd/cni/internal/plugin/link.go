package plugin

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/rtnl"
)

// errLate is that the attachment has begun another life since this ADD began.
var errLate = errors.New("a later ADD has made it")

// makeLink makes the veth pair. What has one of the names already is of an ADD that was cut short, or of another
// plugin, and is replaced.
func (a *adding) makeLink() error {
	err := a.newVeth()
	if errors.Is(err, unix.EEXIST) {
		if err := a.clearNames(); err != nil {
			fault := kernelFault("replace the interface "+a.IfName+" that the container has", err)
			if errors.Is(err, errLate) {
				fault.Code = spec.TryAgain
			}
			return fault
		}
		err = a.newVeth()
	}
	if errors.Is(err, unix.ENODEV) { // made, and not found
		return fmt.Errorf("make the container's interface %s: %w", a.IfName, errLinkGone)
	}
	if err != nil {
		return kernelFault("make the container's interface "+a.IfName, err)
	}
	return nil
}

func (a *adding) newVeth() error {
	a.host = rtnl.Link{}
	return a.node.Do(
		rtnl.NewVeth(rtnl.Veth{
			Name: a.hostName, MAC: a.hostMAC, MTU: uint32(a.Config.MTU),
			Peer: rtnl.VethPeer{Name: a.IfName, MAC: a.podMAC, NetNS: a.netns},
		}),
		rtnl.LinkByName(a.hostName, &a.host),
	)
}

// clearNames removes what stands in the way on either side, but not what a later ADD has made: then this one is late.
func (a *adding) clearNames() error {
	var host rtnl.Link
	if err := optional(a.node.Do(rtnl.LinkByName(a.hostName, &host))); err != nil {
		return err
	}
	if bornAfter(host, a.began.boot) {
		return errLate
	}
	for _, err := range []error{
		a.node.Do(rtnl.DelLinkByName(a.hostName)), a.pod.Do(rtnl.DelLinkByName(a.IfName)),
	} {
		if err := optional(err); err != nil {
			return err
		}
	}
	return nil
}

// removeLink undoes makeLink. The agent may have done it already.
func (a *adding) removeLink() { _ = a.node.Do(rtnl.DelLink(a.host.Index)) }
