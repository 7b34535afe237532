package probe

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
)

// world is a cluster in memory: its nodes, and what answers. It is [Peers] and [Transport].
type world struct {
	mu      sync.Mutex // guards the fields below
	nodes   []cluster.NodeNetwork
	changed chan struct{}
	latency time.Duration
	fails   map[netip.Addr]map[Protocol]error // context.DeadlineExceeded: no answer
	names   map[netip.Addr]string
	asked   map[netip.Addr][]time.Time
	running int
	most    int // that ran at the same time
}

func newWorld(n int) *world {
	w := &world{
		changed: make(chan struct{}), latency: time.Millisecond, fails: map[netip.Addr]map[Protocol]error{}, names: map[netip.Addr]string{},
		asked: map[netip.Addr][]time.Time{},
	}
	for i := range n {
		w.nodes = append(w.nodes, node(i))
		for _, addr := range node(i).Health {
			w.names[addr] = node(i).Node.Name
		}
	}
	return w
}

func node(i int) cluster.NodeNetwork {
	high, low := byte(i>>8), byte(i)
	return cluster.NodeNetwork{
		Node:      cluster.NodeID{Name: fmt.Sprintf("node%d", i), Key: "k"},
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{192, 168, high, low}), netip.AddrFrom16([16]byte{0xfd, 1, 14: high, 15: low})},
		Health:    []netip.Addr{netip.AddrFrom4([4]byte{10, 0, high, low}), netip.AddrFrom16([16]byte{0xfd, 2, 14: high, 15: low})},
		Routing:   cluster.RoutingNative,
	}
}

func (w *world) Peers() []cluster.NodeNetwork {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]cluster.NodeNetwork(nil), w.nodes...)
}

func (w *world) Changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changed
}

func (w *world) set(nodes ...cluster.NodeNetwork) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes = nodes
	close(w.changed)
	w.changed = make(chan struct{})
	for _, n := range nodes {
		for _, addr := range n.Health {
			w.names[addr] = n.Node.Name
		}
	}
}

// fail has a protocol fail at an address; nil mends it.
func (w *world) fail(addr netip.Addr, protocol Protocol, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fails[addr] == nil {
		w.fails[addr] = map[Protocol]error{}
	}
	w.fails[addr][protocol] = err
}

func (w *world) Ping(ctx context.Context, addr netip.Addr) (time.Duration, error) {
	return w.answer(ctx, addr, ICMP)
}

func (w *world) Hello(ctx context.Context, addr netip.Addr) (string, time.Duration, error) {
	latency, err := w.answer(ctx, addr, HTTP)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names[addr], latency, err
}

func (w *world) answer(ctx context.Context, addr netip.Addr, protocol Protocol) (time.Duration, error) {
	w.mu.Lock()
	w.asked[addr] = append(w.asked[addr], time.Now())
	w.running++
	w.most = max(w.most, w.running)
	latency, err := w.latency, w.fails[addr][protocol]
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.running--
	}()
	if err == context.DeadlineExceeded {
		<-ctx.Done()
		return 0, ErrTimeout
	}
	time.Sleep(latency) // of the test's clock
	return latency, err
}

// askedSince counts the probes of an address.
func (w *world) askedSince(addr netip.Addr, since time.Time) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, at := range w.asked[addr] {
		if !at.Before(since) {
			n++
		}
	}
	return n
}
