package plugin_test

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"

	"porin.dev/porin/internal/deletequeue"
	"porin.dev/porin/internal/rtnl"
)

func (w *story) records(ts *testscript.TestScript, _ bool, _ []string) {
	out := ts.Stdout()
	_, err := deletequeue.Drain(filepath.Join(w.dir, "deletions"), func(records []deletequeue.Record) []error {
		for _, r := range records {
			fmt.Fprintf(out, "%s:%s of %s\n", r.ContainerID, r.IfName, r.Network)
			if r.Began <= 0 {
				ts.Fatalf("a record does not say when the deletion began")
			}
		}
		return make([]error, len(records))
	})
	ts.Check(err)
}

// show lists a namespace in the order of the kernel.
func (w *story) show(ts *testscript.TestScript, _ bool, args []string) {
	_, name := ts.Stdout(), args[0] // no output is output, too
	conn := w.node
	if name != "node" {
		conn = w.containers[name].Conn(w.t)
	}
	links, err := conn.Links()
	ts.Check(err)
	for _, l := range slices.DeleteFunc(links, func(l rtnl.Link) bool { return l.Name == "lo" }) {
		state := "down"
		if l.Up() {
			state = "up"
		}
		fmt.Fprintf(ts.Stdout(), "link %s %s mtu %d mac %s\n", l.Name, state, l.MTU, l.MAC)
		w.showLink(ts, conn, l.Index)
	}
}

func (w *story) showLink(ts *testscript.TestScript, conn *rtnl.Conn, index int) {
	k := readLink(w.t, conn, index)
	for _, a := range k.Addrs {
		fmt.Fprintf(ts.Stdout(), "  address %s\n", a.Prefix)
	}
	for _, r := range k.Routes {
		fmt.Fprintf(ts.Stdout(), "  route %s via %s\n", r.Dst, r.Gateway)
	}
	for _, n := range k.Neighs {
		fmt.Fprintf(ts.Stdout(), "  neighbour %s mac %s\n", n.Addr, n.MAC)
	}
}
