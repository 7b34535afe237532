package blocks_test

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/blocks"
)

// pool: pool NAME CIDR... [disabled] [LABEL=VALUE...]. A block has four addresses of either family, and they do not rest.
func (w *world) pool(_ *testscript.TestScript, args []string) error { return w.putPool(30, args) }

// large-pool is pool with blocks of 32 addresses.
func (w *world) largePool(_ *testscript.TestScript, args []string) error { return w.putPool(27, args) }

func (w *world) putPool(bits int, args []string) error {
	p := blocks.Pool{Name: args[0], IPv4BlockBits: bits, IPv6BlockBits: 96 + bits, Quarantine: time.Nanosecond, NodeSelector: labelsOf(args)}
	for _, arg := range args[1:] {
		if prefix, err := netip.ParsePrefix(arg); err == nil {
			p.Prefixes = append(p.Prefixes, prefix)
		}
		p.Disabled = p.Disabled || arg == "disabled"
	}
	_, err := blocks.NewPools(w.store).Put(context.Background(), p)
	return err
}

func (w *world) deletePool(ts *testscript.TestScript, args []string) error {
	return blocks.NewPools(w.store).Delete(context.Background(), args[0], time.Second)
}

func labelsOf(args []string) map[string]string {
	labels := map[string]string{}
	for _, arg := range args {
		if key, value, ok := strings.Cut(arg, "="); ok {
			labels[key] = value
		}
	}
	return labels
}

// node: node NAME [LABEL=VALUE...]
func (w *world) node(_ *testscript.TestScript, args []string) error {
	n := &node{name: args[0], labels: labelsOf(args), network: newNetwork(w.store, 1, time.Hour, 0)}
	w.nodes[n.name] = n
	return w.start(n)
}

// restarts: restarts NODE: its agent does.
func (w *world) restarts(_ *testscript.TestScript, args []string) error {
	n := w.nodes[args[0]]
	n.stop()
	return w.start(n)
}

// boots: boots NODE: nothing of it is left but what the store has. That takes longer than its lease.
func (w *world) boots(ts *testscript.TestScript, args []string) error {
	n := w.nodes[args[0]]
	n.stop()
	n.network.loseLeases()
	n.network.heal()
	n.kept = nil
	if err := os.Remove(filepath.Join(w.dir, n.name+".json")); err != nil && !os.IsNotExist(err) {
		return err
	}
	return w.start(n)
}

// dies: dies NODE
func (w *world) dies(_ *testscript.TestScript, args []string) error {
	n := w.nodes[args[0]]
	n.network.cutOff()
	n.network.loseLeases()
	n.stop()
	return nil
}

// cut: cut NODE [long]: it does not reach the store; long is that the store takes it for gone.
func (w *world) cut(_ *testscript.TestScript, args []string) error {
	w.nodes[args[0]].network.cutOff()
	if len(args) > 1 {
		w.nodes[args[0]].network.loseLeases()
	}
	return nil
}

func (w *world) heal(_ *testscript.TestScript, args []string) error {
	w.nodes[args[0]].network.heal()
	return nil
}

// pass: pass TIME, for all nodes, which have a look every quarter of it.
func (w *world) pass(_ *testscript.TestScript, args []string) error {
	d, err := time.ParseDuration(args[0])
	for range 4 {
		w.round()
		w.ahead.Add(int64(d / 4))
	}
	w.round()
	return err
}

// round waits until every node has had a round.
func (w *world) round() {
	for _, n := range w.nodes {
		if n.manager != nil {
			_ = n.manager.More(context.Background(), "no-such-pool") // the answer is of no interest
		}
	}
}

// allocate: allocate NODE OWNER [pool=POOL] [ADDRESS]
func (w *world) allocate(ts *testscript.TestScript, args []string) error {
	req := ipam.Request{Owner: ipam.Handle(args[1]), Pool: labelsOf(args)["pool"]}
	for _, arg := range args[2:] {
		if addr, err := netip.ParseAddr(arg); err == nil {
			req.Want.IPv4 = addr
		}
	}
	got, err := w.nodes[args[0]].sides.Allocator.Allocate(context.Background(), req)
	if err == nil {
		_, err = fmt.Fprintln(ts.Stdout(), got.Addresses.List())
	}
	return err
}

// release: release NODE OWNER
func (w *world) release(_ *testscript.TestScript, args []string) error {
	if !w.nodes[args[0]].sides.Allocator.Release(ipam.Handle(args[1])) {
		return fmt.Errorf("%s has nothing", args[1])
	}
	return nil
}

// owned: owned NODE=N... is awaited: so many addresses are in the parts of blocks that a node owns.
func (w *world) owned(ts *testscript.TestScript, args []string) error {
	want, got := labelsOf(args), map[string]string{}
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		parts, err := blocks.Owned(context.Background(), w.store, "")
		if err != nil {
			return err
		}
		size := map[string]int{}
		for _, p := range parts {
			size[p.Node] += 1 << (p.Prefix.Addr().BitLen() - p.Prefix.Bits())
		}
		for node := range want {
			got[node] = fmt.Sprint(size[node])
		}
		if maps.Equal(got, want) {
			return nil
		}
	}
	return fmt.Errorf("owned: %v", got)
}

// where: where NODE says which blocks it owns.
func (w *world) where(ts *testscript.TestScript, args []string) error {
	parts, err := blocks.Owned(context.Background(), w.store, args[0])
	slices.SortFunc(parts, func(a, b blocks.Part) int { return a.Prefix.Addr().Compare(b.Prefix.Addr()) })
	for _, p := range parts {
		_, _ = fmt.Fprintln(ts.Stdout(), p.Pool, p.Prefix)
	}
	return err
}
