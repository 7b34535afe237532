package clustertest

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
)

// Network is the way of one node to the store. It can be cut, it delays calls, and it loses some answers: then what was asked for has
// been done, and the caller does not know. A deletion may arrive long after its caller has given up.
type Network struct {
	backend cluster.Backend
	delay   time.Duration

	mu     sync.Mutex // guards the fields below
	rng    *rand.Rand
	loss   float64
	cut    chan struct{} // closed when it is healed; nil when it is not cut
	late   sync.WaitGroup
	closed chan struct{}
}

// NewNetwork returns the way to a backend that loses answers with a probability. Each call takes up to delay.
func NewNetwork(b cluster.Backend, seed uint64, loss float64, delay time.Duration) *Network {
	return &Network{backend: b, delay: delay, rng: rand.New(rand.NewPCG(seed, 11)), loss: loss, closed: make(chan struct{})}
}

// Cut has every call fail until Heal.
func (n *Network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut == nil {
		n.cut = make(chan struct{})
	}
}

// Heal ends a cut.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut != nil {
		close(n.cut)
		n.cut = nil
	}
}

// Calm ends the loss of answers.
func (n *Network) Calm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss = 0
}

// Close waits for calls that are late.
func (n *Network) Close() {
	close(n.closed)
	n.late.Wait()
}

func (n *Network) healed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

// do makes a call over the network.
func (n *Network) do(ctx context.Context, call func(context.Context) error) error {
	n.mu.Lock()
	cut, lost, late := n.cut != nil, n.rng.Float64() < n.loss, n.rng.Float64() < n.loss/4
	wait := time.Duration(n.rng.Int64N(int64(n.delay) + 1))
	n.mu.Unlock()
	if cut {
		return fmt.Errorf("%w: the network is cut", cluster.ErrUnavailable)
	}
	if late { // the call arrives after its caller has given up
		n.late.Go(func() {
			select {
			case <-time.After(20 * wait):
			case <-n.closed:
			}
			_ = call(context.WithoutCancel(ctx))
		})
		return fmt.Errorf("%w: no answer in time", cluster.ErrUnavailable)
	}
	time.Sleep(wait) // what a network takes
	err := call(ctx)
	if lost || n.healed() != nil {
		return fmt.Errorf("%w: the answer is lost", cluster.ErrUnavailable)
	}
	return err
}

// Backend returns the store behind the network.
func (n *Network) Backend() cluster.Backend {
	return cluster.Backend{Nodes: netNodes{n}, Sessions: netSessions{n}, Pools: netPools{n}, Blocks: netBlocks{n}, Info: netInfo{n}}
}

// ask is do for a call with a result.
func ask[T any](ctx context.Context, n *Network, call func(context.Context) (T, error)) (result T, err error) {
	var got T
	err = n.do(ctx, func(ctx context.Context) (err error) {
		got, err = call(ctx)
		return err
	})
	if err != nil {
		return result, err
	}
	return got, nil
}

// list fails as a whole or not at all.
func list[T any](ctx context.Context, n *Network, all func(context.Context) iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		if err := n.do(ctx, func(context.Context) error { return nil }); err != nil {
			yield(none, err)
			return
		}
		all(ctx)(yield)
	}
}

// watch is silent while the network is cut, and begins again with a snapshot.
func watch[T any](ctx context.Context, n *Network, begin func(context.Context) (<-chan cluster.Change[T], error)) (<-chan cluster.Change[T], error) {
	out := make(chan cluster.Change[T])
	go func() {
		defer close(out)
		for ctx.Err() == nil {
			if healed := n.healed(); healed != nil {
				select {
				case <-healed:
				case <-ctx.Done():
				case <-n.closed:
					return
				}
				continue
			}
			forward(ctx, n, begin, out)
		}
	}()
	return out, nil
}

func forward[T any](ctx context.Context, n *Network, begin func(context.Context) (<-chan cluster.Change[T], error), out chan<- cluster.Change[T]) {
	ctx, cancel := context.WithCancel(ctx)
	changes, err := begin(ctx)
	if err != nil {
		cancel()
		return
	}
	defer func() {
		cancel()
		for range changes {
		}
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for n.healed() == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case change, ok := <-changes:
			if !ok || n.healed() != nil {
				return
			}
			select {
			case out <- change:
			case <-ctx.Done():
				return
			}
		}
	}
}

type netNodes struct{ n *Network }

func (s netNodes) Create(ctx context.Context, v cluster.Node) (cluster.Node, error) {
	return ask(ctx, s.n, func(ctx context.Context) (cluster.Node, error) { return s.n.backend.Nodes.Create(ctx, v) })
}
func (s netNodes) Get(ctx context.Context, id cluster.NodeID) (cluster.Node, error) {
	return ask(ctx, s.n, func(ctx context.Context) (cluster.Node, error) { return s.n.backend.Nodes.Get(ctx, id) })
}
func (s netNodes) Update(ctx context.Context, v cluster.Node) (cluster.Node, error) {
	return ask(ctx, s.n, func(ctx context.Context) (cluster.Node, error) { return s.n.backend.Nodes.Update(ctx, v) })
}
func (s netNodes) Delete(ctx context.Context, v cluster.Node) error {
	return s.n.do(ctx, func(ctx context.Context) error { return s.n.backend.Nodes.Delete(ctx, v) })
}
func (s netNodes) All(ctx context.Context) iter.Seq2[cluster.Node, error] {
	return list(ctx, s.n, s.n.backend.Nodes.All)
}
func (s netNodes) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Node], error) {
	return watch(ctx, s.n, s.n.backend.Nodes.Watch)
}

type netSessions struct{ n *Network }

func (s netSessions) Get(ctx context.Context, id cluster.NodeID) (cluster.Session, error) {
	return ask(ctx, s.n, func(ctx context.Context) (cluster.Session, error) { return s.n.backend.Sessions.Get(ctx, id) })
}
func (s netSessions) Put(ctx context.Context, v cluster.Session) (cluster.Session, error) {
	return ask(ctx, s.n, func(ctx context.Context) (cluster.Session, error) { return s.n.backend.Sessions.Put(ctx, v) })
}
func (s netSessions) Delete(ctx context.Context, id cluster.NodeID) error {
	return s.n.do(ctx, func(ctx context.Context) error { return s.n.backend.Sessions.Delete(ctx, id) })
}
func (s netSessions) All(ctx context.Context) iter.Seq2[cluster.Session, error] {
	return list(ctx, s.n, s.n.backend.Sessions.All)
}
func (s netSessions) Watch(ctx context.Context, id cluster.NodeID) (<-chan cluster.Change[cluster.Session], error) {
	return watch(ctx, s.n, func(ctx context.Context) (<-chan cluster.Change[cluster.Session], error) {
		return s.n.backend.Sessions.Watch(ctx, id)
	})
}

type netPools struct{ n *Network }

func (s netPools) Create(ctx context.Context, v cluster.Pool) (cluster.Pool, error) {
	return ask(ctx, s.n, func(ctx context.Context) (cluster.Pool, error) { return s.n.backend.Pools.Create(ctx, v) })
}
func (s netPools) Get(ctx context.Context, name string) (cluster.Pool, error) {
	return ask(ctx, s.n, func(ctx context.Context) (cluster.Pool, error) { return s.n.backend.Pools.Get(ctx, name) })
}
func (s netPools) Update(ctx context.Context, v cluster.Pool) (cluster.Pool, error) {
	return ask(ctx, s.n, func(ctx context.Context) (cluster.Pool, error) { return s.n.backend.Pools.Update(ctx, v) })
}
func (s netPools) Delete(ctx context.Context, v cluster.Pool) error {
	return s.n.do(ctx, func(ctx context.Context) error { return s.n.backend.Pools.Delete(ctx, v) })
}
func (s netPools) All(ctx context.Context) iter.Seq2[cluster.Pool, error] {
	return list(ctx, s.n, s.n.backend.Pools.All)
}
func (s netPools) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Pool], error) {
	return watch(ctx, s.n, s.n.backend.Pools.Watch)
}

type netBlocks struct{ n *Network }

func (s netBlocks) Create(ctx context.Context, v cluster.Block) error {
	return s.n.do(ctx, func(ctx context.Context) error { return s.n.backend.Blocks.Create(ctx, v) })
}
func (s netBlocks) Get(ctx context.Context, cidr netip.Prefix) (cluster.Block, error) {
	return ask(ctx, s.n, func(ctx context.Context) (cluster.Block, error) { return s.n.backend.Blocks.Get(ctx, cidr) })
}
func (s netBlocks) Delete(ctx context.Context, cidr netip.Prefix, claim string) error {
	return s.n.do(ctx, func(ctx context.Context) error { return s.n.backend.Blocks.Delete(ctx, cidr, claim) })
}
func (s netBlocks) All(ctx context.Context, f cluster.BlockFilter) iter.Seq2[cluster.Block, error] {
	return list(ctx, s.n, func(ctx context.Context) iter.Seq2[cluster.Block, error] { return s.n.backend.Blocks.All(ctx, f) })
}

type netInfo struct{ n *Network }

func (s netInfo) Get(ctx context.Context) (cluster.Record, cluster.Position, error) {
	type both struct {
		cluster.Record
		cluster.Position
	}
	got, err := ask(ctx, s.n, func(ctx context.Context) (both, error) {
		r, p, err := s.n.backend.Info.Get(ctx)
		return both{r, p}, err
	})
	return got.Record, got.Position, err
}
func (s netInfo) Put(ctx context.Context, v cluster.Record) (cluster.Record, error) {
	return ask(ctx, s.n, func(ctx context.Context) (cluster.Record, error) { return s.n.backend.Info.Put(ctx, v) })
}
func (s netInfo) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Record], error) {
	return watch(ctx, s.n, s.n.backend.Info.Watch)
}
