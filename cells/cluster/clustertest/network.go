package clustertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
)

// Network is the way of one node to the store. It can be cut, it delays calls, and it loses some answers: then what was
// asked for has been done, and the caller does not know. A deletion may arrive long after its caller has given up. The
// process behind it can be paused.
type Network struct {
	backend cluster.Backend
	delay   time.Duration

	mu     sync.Mutex // guards the fields below
	rng    *rand.Rand
	loss   float64
	cut    chan struct{} // closed when it is healed; nil when it is not cut
	whole  chan struct{} // closed when it is cut
	paused chan struct{} // closed when the process goes on; nil when it is not paused
	late   sync.WaitGroup
	closed chan struct{}
	// watches has each open watch, by the type of its records: whether it has told a snapshot since the last SetBack.
	watches map[*string]bool

	closing sync.Once
}

// NewNetwork returns the way to a backend that loses answers with a probability. Each call takes up to delay.
func NewNetwork(b cluster.Backend, seed uint64, loss float64, delay time.Duration) *Network {
	return &Network{
		backend: b, delay: delay, rng: rand.New(rand.NewPCG(seed, 11)), loss: loss, whole: make(chan struct{}), closed: make(chan struct{}), watches: map[*string]bool{},
	}
}

// Cut has every call fail until Heal.
func (n *Network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut == nil {
		n.cut = make(chan struct{})
		close(n.whole)
	}
}

// Heal ends a cut.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut != nil {
		close(n.cut)
		n.cut, n.whole = nil, make(chan struct{})
	}
}

// Pause stops the process in the middle of its work, until Resume: no call begins, and answers that were sent,
// and watch events, reach no reader. The store goes on.
func (n *Network) Pause() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.paused == nil {
		n.paused = make(chan struct{})
	}
}

// Resume ends a pause.
func (n *Network) Resume() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.paused != nil {
		close(n.paused)
		n.paused = nil
	}
}

// whilePaused returns when the process is not paused.
func (n *Network) whilePaused() {
	for {
		n.mu.Lock()
		paused := n.paused
		n.mu.Unlock()
		if paused == nil {
			return
		}
		<-paused
	}
}

// Calm ends the loss of answers.
func (n *Network) Calm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.loss = 0
}

// SetBack has each open watch owe a snapshot: the store is about to be set back.
func (n *Network) SetBack() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for watch := range n.watches {
		n.watches[watch] = false
	}
}

// Late returns the types of the records whose watches owe a snapshot.
func (n *Network) Late() (types []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for watch, told := range n.watches {
		if !told {
			types = append(types, *watch)
		}
	}
	return types
}

// Close ends a pause and waits for calls that are late.
func (n *Network) Close() {
	n.Resume()
	n.closing.Do(func() { close(n.closed) })
	n.late.Wait()
}

func (n *Network) healed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut
}

// do makes a call over the network.
func (n *Network) do(ctx context.Context, _ string, call func(context.Context) error) error {
	n.whilePaused()
	defer n.whilePaused()
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
	time.Sleep(wait) // the delay of a network
	err := call(ctx)
	if lost || n.healed() != nil {
		return fmt.Errorf("%w: the answer is lost", cluster.ErrUnavailable)
	}
	return err
}

// Backend returns the store behind the network.
func (n *Network) Backend() cluster.Backend {
	return between{intercept: n.do, network: n}.backend(n.backend)
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
			if err := forward(ctx, n, begin, out); err != nil {
				select {
				case <-time.After(n.delay + time.Millisecond): // a client waits before it tries again
				case <-ctx.Done():
				}
			}
		}
	}()
	return out, nil
}

func forward[T any](ctx context.Context, n *Network, begin func(context.Context) (<-chan cluster.Change[T], error), out chan<- cluster.Change[T]) error {
	ctx, cancel := context.WithCancel(ctx)
	changes, err := begin(ctx)
	if err != nil {
		cancel()
		return err
	}
	what := fmt.Sprintf("%T", *new(T))
	n.mu.Lock()
	whole := n.whole
	n.watches[&what] = true
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.watches, &what)
		n.mu.Unlock()
		cancel()
		for range changes {
		}
	}()
	for n.healed() == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-whole:
			return nil
		case change, ok := <-changes:
			if change.Kind == cluster.Snapshot {
				n.mu.Lock()
				n.watches[&what] = true
				n.mu.Unlock()
			}
			n.whilePaused()
			if !ok || n.healed() != nil {
				return nil
			}
			select {
			case out <- change:
			case <-ctx.Done():
				return nil
			}
		}
	}
	return nil
}
