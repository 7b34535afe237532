package blocks_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"porin.dev/porin/cells/store"
)

// network is the way of one node to the store. It can be cut, and loses some answers: what was asked for has been done
// then, and nobody knows.
type network struct {
	store.Store
	ttl time.Duration

	mu     sync.Mutex // guards the fields below
	rng    *rand.Rand
	loss   float64
	cut    bool
	healed chan struct{} // closed when it is cut no longer
	leases []*farLease
}

func newNetwork(s store.Store, seed uint64, ttl time.Duration, loss float64) *network {
	return &network{Store: s, ttl: ttl, rng: rand.New(rand.NewPCG(seed, 1)), loss: loss, healed: make(chan struct{})}
}

// cutOff cuts the network. A lease is lost when that lasts for its time.
func (n *network) cutOff() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		return
	}
	n.cut, n.healed = true, make(chan struct{})
	for _, l := range n.leases {
		go l.expire(n.healed, n.ttl)
	}
}

// loseLeases is that the network was cut for long.
func (n *network) loseLeases() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.leases {
		l.lose()
	}
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut {
		n.cut = false
		close(n.healed)
	}
}

func (n *network) isCut() (bool, <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut, n.healed
}

// before and after are asked around each call.
func (n *network) before() error {
	if cut, _ := n.isCut(); cut {
		return store.ErrUnavailable
	}
	return nil
}

func (n *network) after(err error) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err == nil && (n.cut || n.rng.Float64() < n.loss) {
		return store.ErrUnavailable
	}
	return err
}

func (n *network) Get(ctx context.Context, key string) (e store.Entry, err error) {
	if err = n.before(); err == nil {
		e, err = n.Store.Get(ctx, key)
	}
	return e, n.after(err)
}

func (n *network) List(ctx context.Context, prefix string) (entries []store.Entry, revision int64, err error) {
	if err = n.before(); err == nil {
		entries, revision, err = n.Store.List(ctx, prefix)
	}
	return entries, revision, n.after(err)
}

func (n *network) Create(ctx context.Context, key string, value []byte, l store.Lease) (revision int64, err error) {
	if err = n.before(); err == nil {
		if far, ok := l.(*farLease); ok {
			l = far.Lease
		}
		revision, err = n.Store.Create(ctx, key, value, l)
	}
	return revision, n.after(err)
}

func (n *network) CompareAndSwap(ctx context.Context, key string, was int64, value []byte) (revision int64, err error) {
	if err = n.before(); err == nil {
		revision, err = n.Store.CompareAndSwap(ctx, key, was, value)
	}
	return revision, n.after(err)
}

func (n *network) Delete(ctx context.Context, key string, revision int64) (err error) {
	if err = n.before(); err == nil {
		err = n.Store.Delete(ctx, key, revision)
	}
	return n.after(err)
}

func (n *network) Lease(ctx context.Context, ttl time.Duration) (store.Lease, error) {
	if err := n.before(); err != nil {
		return nil, err
	}
	l, err := n.Store.Lease(ctx, ttl)
	if err != nil {
		return nil, err
	}
	far := &farLease{Lease: l, network: n, lost: make(chan struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leases = append(n.leases, far)
	return far, nil
}

// Watch is silent while the network is cut, and begins anew then.
func (n *network) Watch(ctx context.Context, prefix string, after int64) (<-chan store.Event, error) {
	out := make(chan store.Event)
	go func() {
		defer close(out)
		for ctx.Err() == nil {
			if cut, healed := n.isCut(); cut {
				select {
				case <-healed:
				case <-ctx.Done():
				}
				continue
			}
			n.follow(ctx, prefix, after, out)
			after = 0
		}
	}()
	return out, nil
}

// follow passes events on until the network is cut.
func (n *network) follow(ctx context.Context, prefix string, after int64, out chan<- store.Event) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events, err := n.Store.Watch(ctx, prefix, after)
	if err != nil {
		return
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case event, ok := <-events:
			if cut, _ := n.isCut(); cut || !ok {
				return
			}
			select {
			case out <- event:
			case <-ctx.Done():
				return
			}
		case <-tick.C:
			if cut, _ := n.isCut(); cut {
				return
			}
		}
	}
}

// farLease is a lease over the network.
type farLease struct {
	store.Lease
	network *network
	lost    chan struct{}
	once    sync.Once
}

// expire loses the lease unless the network is healed before its time is over.
func (l *farLease) expire(healed <-chan struct{}, ttl time.Duration) {
	select {
	case <-healed:
	case <-time.After(ttl):
		l.lose()
	}
}

func (l *farLease) lose() {
	l.once.Do(func() { close(l.lost) })
	_ = l.Lease.Release(context.Background())
}

// Lost implements store.Lease.
func (l *farLease) Lost() <-chan struct{} { return l.lost }

// CompareAndSwap implements store.Lease.
func (l *farLease) CompareAndSwap(ctx context.Context, key string, was int64, value []byte) (revision int64, err error) {
	if err = l.network.before(); err == nil {
		revision, err = l.Lease.CompareAndSwap(ctx, key, was, value)
	}
	return revision, l.network.after(err)
}
