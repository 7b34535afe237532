package chaos

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/testutil"
)

// holding is what one node says that it has.
type holding struct {
	blocks    []netip.Prefix        // that it gives out from
	addresses map[netip.Addr]string // what has them: an owner on the allocator's record, or an endpoint
}

// compareEvery is the time between two comparisons of all nodes.
const compareEvery = time.Second

// compareOwners compares what all nodes say that they have, every second, until it is told to stop.
func (w *world) compareOwners(stop <-chan struct{}) {
	tick := time.NewTicker(compareEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		// Nodes are not asked at the same moment, and what one has given up another may have: two looks have to agree.
		all := w.holdings(stop)
		first := overlaps(all)
		if len(first) > 0 {
			again := overlaps(w.holdings(stop))
			for what := range first {
				if again[what] {
					w.wrongs.add("two owners", what)
				}
			}
		}
		w.counts.comparisons.Add(1)
		for _, one := range all {
			w.counts.blocks.Add(int64(len(one.blocks)))
			w.counts.addresses.Add(int64(len(one.addresses)))
		}
	}
}

// holdings asks all nodes at once. An agent that is away is asked again until it is back.
func (w *world) holdings(stop <-chan struct{}) []holding {
	all := make([]holding, len(w.hosts))
	var group sync.WaitGroup
	for i, h := range w.hosts {
		group.Go(func() {
			for err := h.ask(&all[i]); err != nil && sleep(retry, stop); err = h.ask(&all[i]) {
			}
		})
	}
	group.Wait()
	return all
}

func (h *host) ask(into *holding) error {
	var usage v1.IPAM
	var endpoints []v1.Endpoint
	if err := h.agent.Get("/v1/ipam", &usage); err != nil {
		return err
	}
	if err := h.agent.Get("/v1/endpoint", &endpoints); err != nil {
		return err
	}
	*into = holding{addresses: map[netip.Addr]string{}}
	for _, p := range usage.Pools {
		for _, r := range p.Ranges {
			if !r.Drained {
				into.blocks = append(into.blocks, r.Prefix)
			}
		}
	}
	for _, a := range usage.Allocations {
		into.addresses[a.Address] = a.Owner
	}
	for _, ep := range endpoints {
		for _, addr := range []netip.Addr{ep.Addresses.IPv4, ep.Addresses.IPv6} {
			if addr.IsValid() {
				into.addresses[addr] = ep.ContainerID + ":" + ep.IfName
			}
		}
	}
	return nil
}

// overlaps are the blocks and the addresses that two nodes have.
func overlaps(all []holding) map[string]bool {
	found := map[string]bool{}
	for i, a := range all {
		for j, b := range all[:i] {
			for addr, owner := range a.addresses {
				if other, ok := b.addresses[addr]; ok {
					found[fmt.Sprintf("address %s: %s on node %d, %s on node %d", addr, other, j+1, owner, i+1)] = true
				}
			}
			for _, block := range a.blocks {
				for _, other := range b.blocks {
					if block.Overlaps(other) {
						found[fmt.Sprintf("block %s on node %d, %s on node %d", other, j+1, block, i+1)] = true
					}
				}
			}
		}
	}
	return found
}

func TestOverlaps(t *testing.T) {
	block, addr := netip.MustParsePrefix("10.0.0.0/29"), netip.MustParseAddr("10.0.0.3")
	one := holding{[]netip.Prefix{block}, map[netip.Addr]string{addr: "a"}}
	other := holding{[]netip.Prefix{netip.MustParsePrefix("10.0.0.8/29")}, map[netip.Addr]string{addr.Next(): "b"}}
	for name, row := range map[string]struct {
		all  []holding
		want int
	}{
		"apart":       {[]holding{one, {}, other}, 0},
		"one block":   {[]holding{one, {}, {blocks: []netip.Prefix{netip.MustParsePrefix("10.0.0.4/30")}}}, 1},
		"one address": {[]holding{one, {}, {addresses: map[netip.Addr]string{addr: "c"}}}, 1},
	} {
		if found := overlaps(row.all); len(found) != row.want {
			t.Errorf("%s: %v, want %d", name, found, row.want)
		}
	}
}

func (h *host) porin(args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testutil.Patience)
	defer cancel()
	return exec.CommandContext(ctx, filepath.Join(h.bin, "porin"), append([]string{"--socket", h.node.Socket}, args...)...).CombinedOutput()
}

// singles is a pool of single addresses: a pod that gets one has claimed a block for it.
var singles = cluster.Pool{Name: "singles", Prefixes: []netip.Prefix{netip.MustParsePrefix("10.65.0.0/27")}, IPv4BlockBits: 32}

// agree waits until no node sees anything wrong about addresses, and has each claim a block.
func (w *world) agree(t *testing.T) {
	t.Helper()
	if w.api == nil {
		return
	}
	testutil.Eventually(t, func() error { // an operation that was under way when the trouble ended
		for _, h := range w.hosts {
			var status v1.Status
			if err := h.agent.Do(http.MethodGet, "/v1/status", nil, &status); err != nil {
				return fmt.Errorf("%s: %w", h.node.Name, err)
			}
			if status.Recovery != nil {
				return fmt.Errorf("%s: a recovery is under way: %v", h.node.Name, w.tryEndRecovery(map[*host]bool{}))
			}
		}
		return nil
	})
	for _, h := range w.hosts {
		testutil.Eventually(t, func() error {
			if out, err := h.porin("ipam", "check"); err != nil {
				return fmt.Errorf("%s: porin ipam check: %w: %s", h.node.Name, err, out)
			}
			return nil
		})
	}
	if err := w.api.putPool(singles); err != nil {
		t.Fatal(err)
	}
	given := map[netip.Addr]string{}
	for _, h := range w.hosts {
		var got v1.Reservation
		testutil.Eventually(t, func() error {
			return h.agent.Do(http.MethodPost, "/v1/ipam", v1.ReservationRequest{Owner: h.node.Name, Pool: singles.Name}, &got)
		})
		addr := got.Addresses.IPv4
		if other := given[addr]; other != "" {
			w.wrongs.add("two owners", fmt.Sprintf("%s: %s and %s", addr, other, h.node.Name))
		}
		given[addr] = h.node.Name
		if err := h.agent.Do(http.MethodDelete, "/v1/ipam/"+addr.String(), nil, nil); err != nil {
			t.Errorf("%s: release %s: %v", h.node.Name, addr, err)
		}
		w.counts.agreed.Add(1)
	}
}
