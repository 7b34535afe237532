package remote

import (
	"net/netip"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// change is one of the simulator's: an address that comes or goes.
type change struct {
	addr  netip.Addr
	there bool
	began time.Time // of the write
}

// observer looks when changes are in the active copy.
type observer struct {
	*world
	addresses *ebpf.Map
	active    uint32
	changes   chan change
	took      chan []time.Duration
}

func (w *world) observe() *observer {
	w.Helper()
	o := &observer{w, w.pinned(bpf.Addresses), w.activeCopy(), make(chan change, 100), make(chan []time.Duration, 1)}
	go o.run()
	return o
}

// change has the observer look for a change.
func (o *observer) change(c change) { o.changes <- c }

// end waits until all changes are in the map. It returns how long each took, in order of the times.
func (o *observer) end() []time.Duration {
	o.Helper()
	close(o.changes)
	took := <-o.took
	slices.Sort(took)
	return took
}

func (o *observer) run() {
	var took []time.Duration
	awaited := map[netip.Addr]change{}
	changes, tick := o.changes, time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for changes != nil || len(awaited) > 0 {
		select {
		case c, ok := <-changes:
			if !ok {
				changes = nil
				continue
			}
			if earlier, ok := awaited[c.addr]; ok {
				took = append(took, time.Since(earlier.began)) // and is overtaken
			}
			awaited[c.addr] = c
		case <-tick.C:
		}
		for addr, c := range awaited {
			switch since := time.Since(c.began); {
			case o.has(addr) == c.there:
				took = append(took, since)
				delete(awaited, addr)
			case since > testutil.Patience:
				o.Errorf("%s in the map: want %t", addr, c.there)
				delete(awaited, addr)
			}
		}
	}
	o.took <- took
}

func (o *observer) has(addr netip.Addr) bool {
	class := uint32(0)
	return o.addresses.Lookup(abi.AddressKey{Addr: abi.AddrOf(addr), Copy: o.active}, &class) == nil
}
