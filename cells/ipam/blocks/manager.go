package blocks

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"porin.dev/porin/cells/store"
)

// Manager holds this node's blocks. One goroutine runs [Manager.Run]; More may be called concurrently.
type Manager struct {
	cfg   Config
	log   *slog.Logger
	store store.Store
	local Local
	clock func() time.Duration
	view  *view
	rng   *rand.Rand

	kick chan struct{} // holds a token while there may be something to do

	mu     sync.Mutex    // guards the fields below
	rounds chan struct{} // closed at the end of a round, and made anew
	stop   func()        // nil before Start

	// The fields below are the running goroutine's.
	lease  store.Lease
	idle   map[holding]time.Duration // since when a part is empty and not needed
	gone   map[holding]sighting      // parts whose owners are gone
	lacked map[string]bool           // wants that stand in the store, by key
	noted  memo                      // as it was last written
	pools  map[string]Pool           // as this node gives out from them
	given  map[holding]bool          // parts that may or may not have been given up: the answer was lost
}

// New returns a manager that has not begun. clock is the boot clock: it goes on while the machine sleeps, and nobody sets it.
func New(cfg Config, s store.Store, local Local, clock func() time.Duration, log *slog.Logger) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the node's blocks: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(cfg.Node))
	return &Manager{
		cfg: cfg, log: log, store: s, local: local, clock: clock, view: newView(), rng: rand.New(rand.NewPCG(h.Sum64(), uint64(clock()))),
		kick: make(chan struct{}, 1), rounds: make(chan struct{}),
		idle: map[holding]time.Duration{}, gone: map[holding]sighting{}, lacked: map[string]bool{}, given: map[holding]bool{}, pools: map[string]Pool{},
	}, nil
}

// Run holds blocks until ctx ends. What is owned then stays owned.
func (m *Manager) Run(ctx context.Context) error {
	m.recall()
	events, err := m.store.Watch(ctx, "", 0)
	if err != nil {
		return fmt.Errorf("watch the cluster's pools and blocks: %w", err)
	}
	tick := time.NewTicker(m.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-events:
			if !ok {
				return nil
			}
			m.take(event)
			m.takeAll(ctx, events)
		case <-tick.C:
		case <-m.kick:
		}
		m.round(ctx)
	}
}

// together is how long events are gathered before they are acted on: when many nodes start each would act on each event.
const together = 250 * time.Millisecond

// takeAll takes in what comes together. One who waits for addresses does not wait for that.
func (m *Manager) takeAll(ctx context.Context, events <-chan store.Event) {
	end := time.NewTimer(together)
	defer end.Stop()
	for {
		select {
		case event, ok := <-events:
			if !ok {
				return
			}
			m.take(event)
		case <-m.kick:
			m.Kick() // for the round after this one: it may have come too late for this
			return
		case <-end.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

func (m *Manager) take(event store.Event) {
	switch event.Type {
	case store.Put:
		m.view.put(event.Entry)
	case store.Deleted:
		m.view.drop(event.Entry.Key)
	case store.Resync:
		m.view.reset(event.Entries)
	}
}

// More waits for a round that begins now, for who has found no address in the node's blocks.
func (m *Manager) More(ctx context.Context) error {
	for range 2 { // one that runs now may have looked already
		m.mu.Lock()
		ended := m.rounds
		m.mu.Unlock()
		m.Kick()
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Kick has a round begin soon. It does not block.
func (m *Manager) Kick() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// round makes what this node holds what it should hold.
func (m *Manager) round(ctx context.Context) {
	defer m.endRound()
	err := m.live(ctx)
	if err != nil || !m.view.isSynced() {
		m.warn(err, "the store is away; own blocks are given out from")
		return
	}
	m.warn(m.makeDefault(ctx), "the pool that the configuration names is not there")
	m.configure()
	m.warn(m.settle(ctx), "parts of blocks may be this node's or not, and are not given out from")
	m.adopt()
	for _, name := range m.needed() {
		m.warn(m.hold(ctx, name), "a pool's blocks are not as they should be")
	}
	m.warn(m.reclaim(ctx, m.clock()), "blocks of a node that is gone stay")
	m.warn(m.note(), "a start without the store would know nothing of the own blocks")
}

func (m *Manager) endRound() {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.rounds)
	m.rounds = make(chan struct{})
}

// warn tells of what the next round tries again. The end of a round's context is no fault.
func (m *Manager) warn(err error, what string) {
	if err != nil && !errors.Is(err, context.Canceled) {
		m.log.Warn(what+", next try soon", "error", err)
	}
}

// makeDefault makes the pool of the configuration, once: from then on it is the cluster's.
func (m *Manager) makeDefault(ctx context.Context) error {
	if _, ok := m.view.pool(DefaultPool); ok || len(m.cfg.DefaultPool) == 0 {
		return nil
	}
	prefixes, err := parsePrefixes(m.cfg.DefaultPool)
	if err != nil {
		return err
	}
	pools := NewPools(m.store)
	if _, err = pools.Get(ctx, DefaultPool); errors.Is(err, ErrNoPool) {
		_, err = pools.Put(ctx, Pool{Name: DefaultPool, Prefixes: prefixes})
	}
	if err != nil {
		return err
	}
	e, err := m.store.Get(ctx, poolsKey) // sooner than the watch tells
	if err == nil {
		m.view.put(e)
	}
	return err
}

// configure has the node give out from pools as they are now.
func (m *Manager) configure() {
	now := map[string]Pool{}
	for _, name := range m.view.poolNames() {
		now[name], _ = m.view.pool(name)
		m.local.Configure(now[name])
	}
	for name := range m.pools {
		if _, ok := now[name]; !ok {
			m.local.Forget(name)
		}
	}
	m.pools = now
}

// adopt has what this node owns given out from, and what it owns no longer not.
func (m *Manager) adopt() {
	own := map[string]map[string]bool{}
	for _, h := range m.view.holdings(m.isSelf) {
		if m.given[h] {
			continue
		}
		if own[h.pool] == nil {
			own[h.pool] = map[string]bool{}
		}
		own[h.pool][h.part.String()] = true
		if pool, ok := m.view.pool(h.pool); ok && pool.claimable(m.cfg.Labels) && pool.has(h.part) {
			m.warn(m.local.Add(h.pool, h.part), "an own block cannot be given out from")
		} else {
			m.local.Drain(h.pool, h.part)
		}
	}
	for _, pool := range m.local.Wanted() {
		for _, u := range m.local.Usage(pool) {
			if !own[pool][u.Block.String()] {
				m.local.Drain(pool, u.Block)
				_ = m.local.Remove(pool, u.Block) // when nothing of it is in use
			}
		}
	}
}

func (m *Manager) isSelf(node string) bool { return node == m.cfg.Node }

// claimable tells whether a node of these labels may have more of the pool.
func (p Pool) claimable(labels map[string]string) bool { return !p.Disabled && p.fits(labels) }

// needed returns the pools that somebody has asked for, and those that this node has blocks of.
func (m *Manager) needed() []string {
	seen := map[string]bool{}
	var names []string
	add := func(name string) {
		if !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	for _, name := range append(m.local.Wanted(), DefaultPool) { // which is claimed ahead of the first ADD
		add(name)
	}
	for _, h := range m.view.holdings(m.isSelf) {
		add(h.pool)
	}
	return names
}

// hold has the node own of one pool what it needs.
func (m *Manager) hold(ctx context.Context, name string) error {
	pool, known := m.view.pool(name)
	var errs []error
	ours := known && pool.claimable(m.cfg.Labels)
	for _, f := range []family{ipv4, ipv6} {
		free, usage := m.usage(name, f)
		ahead := !m.view.wanted(name, f, m.cfg.Node) // nobody claims ahead while somebody has none
		if ours && pool.count(f) > 0 && (free == 0 || ahead && free < m.cfg.enough()) {
			errs = append(errs, m.claimUntil(ctx, pool, f, m.cfg.enough()))
			continue
		}
		errs = append(errs, m.unwant(ctx, name, f), m.giveBack(ctx, name, f, ours, usage))
	}
	return errors.Join(errs...)
}

func (m *Manager) usage(pool string, f family) (free int, list []Usage) {
	for _, u := range m.local.Usage(pool) {
		if familyOf(u.Block) == f {
			list = append(list, u)
			free += u.free()
		}
	}
	return free, list
}
