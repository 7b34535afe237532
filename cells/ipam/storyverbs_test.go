package ipam_test

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"porin.dev/porin/cells/ipam"
)

// delegated: a node whose addresses another IPAM gives.
func (w *world) delegated(*testscript.TestScript, []string) error {
	cfg := ipam.DefaultConfig()
	cfg.Mode = ipam.ModeDelegated
	return w.start(cfg)
}

// multi-pool: multi-pool POOL QUARANTINE FAMILY... is a node of the cluster's pools that has heard of one.
func (w *world) multiPool(ts *testscript.TestScript, args []string) error {
	cfg := ipam.DefaultConfig()
	cfg.Mode = ipam.ModeMultiPool
	ts.Check(w.start(cfg))
	w.sides.MultiPool.Until(forever)
	return w.configure(ts, args)
}

// configure: configure POOL QUARANTINE FAMILY... [reuse-resting]
func (w *world) configure(ts *testscript.TestScript, args []string) error {
	quarantine, err := time.ParseDuration(args[1])
	w.sides.MultiPool.Configure(args[0], ipam.Settings{
		IPv4: slices.Contains(args[2:], "ipv4"), IPv6: slices.Contains(args[2:], "ipv6"), Quarantine: quarantine,
		ReuseResting: slices.Contains(args[2:], "reuse-resting"),
	})
	return err
}

// add, drain, remove: add POOL BLOCK
func (w *world) add(ts *testscript.TestScript, args []string) error {
	return w.sides.MultiPool.Add(args[0], netip.MustParsePrefix(args[1]))
}

func (w *world) drain(ts *testscript.TestScript, args []string) error {
	w.sides.MultiPool.Drain(args[0], netip.MustParsePrefix(args[1]))
	return nil
}

func (w *world) remove(ts *testscript.TestScript, args []string) error {
	return w.sides.MultiPool.Remove(args[0], netip.MustParsePrefix(args[1]))
}

// cut-off: the store has not heard of the node since it booted; come-back: now it has.
func (w *world) cutOff(*testscript.TestScript, []string) error {
	w.sides.MultiPool.Until(0)
	return nil
}

func (w *world) comeBack(*testscript.TestScript, []string) error {
	w.sides.MultiPool.Until(forever)
	return nil
}

// allocate-from: allocate-from POOL OWNER
func (w *world) allocateFrom(ts *testscript.TestScript, args []string) error {
	return w.ask(ts, ipam.Request{Pool: args[0], Owner: ipam.Handle(args[1])})
}

// allocate-reserved: allocate-reserved OWNER RESERVER takes over what was reserved.
func (w *world) allocateReserved(ts *testscript.TestScript, args []string) error {
	return w.ask(ts, ipam.Request{Owner: ipam.Handle(args[0]), Reservation: w.reserved[args[1]].Token})
}

// reserve: reserve OWNER LIFETIME [ADDRESS...]
func (w *world) reserve(ts *testscript.TestScript, args []string) error {
	lifetime, err := time.ParseDuration(args[1])
	ts.Check(err)
	got, err := w.sides.Reserver.Reserve(context.Background(), ipam.Request{Owner: ipam.Handle(args[0]), Want: pair(ts, args[2:])}, lifetime)
	if err == nil {
		w.reserved[args[0]] = got
		show(ts, got.Addresses)
	}
	return err
}

// return: return ADDRESS as an operator does, who has no token.
func (w *world) giveBack(ts *testscript.TestScript, args []string) error {
	_, err := w.sides.Reserver.Return(netip.MustParseAddr(args[0]), "")
	return err
}

// return-reserved: return-reserved RESERVER with the token.
func (w *world) returnReserved(ts *testscript.TestScript, args []string) error {
	r := w.reserved[args[0]]
	_, err := w.sides.Reserver.Return(r.Addresses.List()[0], r.Token)
	return err
}
