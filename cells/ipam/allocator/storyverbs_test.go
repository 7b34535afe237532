package allocator_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/fault"
)

// multi-pool: multi-pool POOL QUARANTINE FAMILY... is a node of the cluster's pools that has heard of one.
func (w *world) multiPool(ts *testscript.TestScript, args []string) error {
	return w.start(func() error { return w.configure(ts, args) })
}

// configure: configure POOL QUARANTINE FAMILY... [reuse-resting] [exclude=CIDR,...] [namespaces=NAME,...]
func (w *world) configure(ts *testscript.TestScript, args []string) error {
	quarantine, err := time.ParseDuration(args[1])
	settings := allocator.Settings{
		IPv4: slices.Contains(args[2:], "ipv4"), IPv6: slices.Contains(args[2:], "ipv6"), Quarantine: quarantine,
		ReuseResting: slices.Contains(args[2:], "reuse-resting"),
	}
	for _, arg := range args[2:] {
		switch name, value, _ := strings.Cut(arg, "="); name {
		case "exclude":
			for _, text := range strings.Split(value, ",") {
				settings.Exclude = append(settings.Exclude, netip.MustParsePrefix(text))
			}
		case "namespaces":
			settings.AllowedNamespaces = strings.Split(value, ",")
		}
	}
	w.Pools().Configure(args[0], settings)
	return err
}

// allocate-in: allocate-in NAMESPACE POOL OWNER
func (w *world) allocateIn(ts *testscript.TestScript, args []string) error {
	return w.ask(ts, allocator.Request{Namespace: args[0], Pool: args[1], Owner: allocator.Handle(args[2])})
}

// add, drain, remove: add POOL BLOCK
func (w *world) add(ts *testscript.TestScript, args []string) error {
	return w.Pools().Add(args[0], netip.MustParsePrefix(args[1]))
}

func (w *world) drain(ts *testscript.TestScript, args []string) error {
	w.Pools().Drain(args[0], netip.MustParsePrefix(args[1]))
	return nil
}

func (w *world) remove(ts *testscript.TestScript, args []string) error {
	return w.Pools().Remove(args[0], netip.MustParsePrefix(args[1]))
}

// forget: forget POOL, which the cluster has no longer.
func (w *world) forget(_ *testscript.TestScript, args []string) error {
	w.Pools().DeletePool(args[0])
	return nil
}

// suspend: another machine has the node's key; resume: no longer.
func (w *world) suspend(*testscript.TestScript, []string) error {
	w.Pools().Suspend(errCloned)
	return nil
}

func (w *world) resume(*testscript.TestScript, []string) error {
	w.Pools().Suspend(nil)
	return nil
}

var errCloned = fault.New(fault.Conflict, "another machine has this node's key")

// allocate-from: allocate-from POOL OWNER
func (w *world) allocateFrom(ts *testscript.TestScript, args []string) error {
	return w.ask(ts, allocator.Request{Pool: args[0], Owner: allocator.Handle(args[1])})
}

// allocate-reserved: allocate-reserved OWNER RESERVER takes over what was reserved.
func (w *world) allocateReserved(ts *testscript.TestScript, args []string) error {
	return w.ask(ts, allocator.Request{Owner: allocator.Handle(args[0]), Reservation: w.reserved[args[1]].Token})
}

// reserve: reserve OWNER LIFETIME|permanent [ADDRESS...]
func (w *world) reserve(ts *testscript.TestScript, args []string) error {
	lifetime := allocator.Permanent
	if args[1] != "permanent" {
		var err error
		lifetime, err = time.ParseDuration(args[1])
		ts.Check(err)
	}
	got, err := w.Reserve(allocator.Request{Owner: allocator.Handle(args[0]), Want: pair(ts, args[2:])}, lifetime)
	if err == nil {
		w.reserved[args[0]] = got
		show(ts, got.Addresses)
	}
	return err
}

// return: return ADDRESS as an operator does, without a token.
func (w *world) giveBack(ts *testscript.TestScript, args []string) error {
	_, err := w.ReleaseReservation(netip.MustParseAddr(args[0]), "", nil)
	return err
}

// return-reserved: return-reserved RESERVER with the token.
func (w *world) returnReserved(ts *testscript.TestScript, args []string) error {
	r := w.reserved[args[0]]
	_, err := w.ReleaseReservation(r.Addresses.List()[0], r.Token, nil)
	return err
}

// node-addresses: node-addresses INTERFACE=ADDRESS... are all that the interfaces of the node have.
func (w *world) nodeAddresses(ts *testscript.TestScript, args []string) error {
	ofNode := map[netip.Addr]string{}
	for _, arg := range args {
		ifname, addr, _ := strings.Cut(arg, "=")
		ofNode[netip.MustParseAddr(addr)] = ifname
	}
	for _, a := range w.SetNodeAddresses(ofNode) {
		owner := ""
		if a.Owner != "" {
			owner = ", in use by " + string(a.Owner)
		}
		_, _ = fmt.Fprintf(ts.Stdout(), "%s of %s%s\n", a.Addr, a.IfName, owner)
	}
	return nil
}

// allocate-for: allocate-for POD OWNER, where the pod is a handle.
func (w *world) allocateFor(ts *testscript.TestScript, args []string) error {
	return w.ask(ts, allocator.Request{PodHandle: allocator.Handle(args[0]), Owner: allocator.Handle(args[1])})
}

// note: note NAME OWNER writes down what the owner has now, with its sequence number.
func (w *world) note(_ *testscript.TestScript, args []string) error {
	for _, a := range w.List() {
		if a.Owner == allocator.Handle(args[1]) {
			w.noted[args[0]] = a
			return nil
		}
	}
	return fmt.Errorf("%s has nothing", args[1])
}

// release-noted: release-noted NAME releases just that.
func (w *world) releaseNoted(_ *testscript.TestScript, args []string) error {
	if !w.ReleaseListed(w.noted[args[0]]) {
		return fmt.Errorf("%s is no more", args[0])
	}
	return nil
}
