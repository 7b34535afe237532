package blocks

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/store"
)

// Manager holds this node's blocks. One goroutine runs [Manager.Run]; More, Held and Recheck may be called concurrently.
type Manager struct {
	cfg    Config
	log    *slog.Logger
	store  store.Store
	local  Local
	clock  func() time.Duration
	rng    *rand.Rand
	meters *meters

	kick chan struct{} // holds a token while there may be something to do

	mu   sync.Mutex // guards the fields below
	asks []*ask
	held []Part // at the end of the last round
	stop func() // nil before Start

	// What is below is the running goroutine's.
	notices notices
	own     owned
	lease   store.Lease
	pools   map[string]Pool // as this node gives out from them
	noted   memo            // as it was last written

	identity // who this node is
	standing // how far the store can be relied on
	giving   // what is given up, and when
	watching // the other nodes
}

// New returns a manager that has not begun. clock is the boot clock: it goes on while the machine sleeps, and nobody sets it.
func New(cfg Config, s store.Store, local Local, clock func() time.Duration, log *slog.Logger) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the node's blocks: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(cfg.Node))
	m := &Manager{
		cfg: cfg, log: log, store: s, local: local, clock: clock, rng: rand.New(rand.NewPCG(h.Sum64(), uint64(clock()))),
		kick: make(chan struct{}, 1), meters: newMeters(), notices: newNotices(), own: newOwned(cfg.Node), pools: map[string]Pool{},
		identity: identity{agent: identify("")}, giving: newGiving(), watching: watching{gone: map[holding]sighting{}},
	}
	m.nextLook = clock() + m.lookAfter(0)
	local.Low(cfg.enough(), m.Kick) // what is kept ahead is claimed before anybody waits for it
	return m, nil
}

// Run holds blocks until ctx ends. What is owned then stays owned.
func (m *Manager) Run(ctx context.Context) error {
	events, err := m.store.Watch(ctx, noticesPrefix, 0)
	if err != nil {
		return fmt.Errorf("watch the cluster's pools: %w", err)
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
			m.resync(event)
			m.notices.take(event)
		case <-m.lost():
		case <-tick.C:
		case <-m.kick:
		}
		m.round(ctx)
	}
}

// resync has this node find out what the store knows of it: it may be less than before.
func (m *Manager) resync(event store.Event) {
	if event.Type == store.Resync && m.notices.synced {
		m.unsure = true
	}
	if event.Back {
		m.setBack()
	}
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
	asks := m.takeAsks()
	err := m.live(ctx)
	if err == nil {
		err = m.settle(ctx)
	}
	if err == nil && m.lacking {
		err = m.regain(ctx)
	}
	if err != nil {
		if !errors.Is(err, ErrNameTaken) { // which the log has said
			m.warn(err, "the store is away; own blocks are given out from")
		}
		m.answer(asks, func(*ask) (bool, error) { return true, err })
		return
	}
	m.warn(m.makeDefault(ctx), "the pool that the configuration names is not there")
	m.configure()
	m.adopt()
	for _, name := range m.needed() {
		m.warn(m.hold(ctx, name), "a pool's blocks are not as they should be")
	}
	m.publish() // before anybody goes on
	m.answer(asks, func(a *ask) (bool, error) { return m.serve(ctx, a) })
	m.warn(m.look(ctx), "blocks of a node that is gone stay")
	m.warn(m.note(), "a start without the store would know nothing of the own blocks")
	m.publish()
	m.returnSoon()
}

// returnSoon has another round begin soon when all that keeps a block, which is to be given back, are addresses that rest.
func (m *Manager) returnSoon() {
	if m.restless {
		time.AfterFunc(m.cfg.Interval/20, m.Kick)
	}
	m.restless = false
}

// warn tells of what the next round tries again. The end of a round's context is no fault, and of a store that has lost
// something the log has told.
func (m *Manager) warn(err error, what string) {
	if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, errAmiss) {
		m.log.Warn(what+", next try soon", "error", err)
	}
}

// makeDefault makes the pool of the configuration, once: from then on it is the cluster's.
func (m *Manager) makeDefault(ctx context.Context) error {
	if _, ok := m.notices.pools[DefaultPool]; ok || len(m.cfg.DefaultPool) == 0 {
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
	return m.readPools(ctx) // sooner than the watch tells
}

// configure has the node give out from pools as they are now.
func (m *Manager) configure() {
	now := m.notices.pools
	for _, name := range m.notices.poolNames() {
		m.local.Configure(now[name])
	}
	for name := range m.pools {
		if _, ok := now[name]; !ok {
			m.local.Forget(name)
		}
	}
	m.pools = now
}

// adopt has what this node owns given out from, and what it owns no longer not. What is in doubt stays as it is.
func (m *Manager) adopt() {
	own := map[idleKey]bool{}
	for _, h := range m.own.holdings() {
		own[idleKey{h.pool, h.part}] = true
		if m.own.doubts[h.slotID] {
			continue
		}
		if pool, ok := m.notices.pools[h.pool]; ok && pool.claimable(m.cfg.Labels) && pool.has(h.part) {
			m.warn(m.local.Add(h.pool, h.part), "an own block cannot be given out from")
		} else {
			m.retire(h.pool, h.part)
		}
	}
	for _, pool := range m.local.Wanted() {
		for _, u := range m.local.Usage(pool) {
			if !own[idleKey{pool, u.Block}] && !m.own.inDoubt(pool, u.Block) {
				m.local.Drain(pool, u.Block)
				_ = m.local.Remove(pool, u.Block) // when nothing of it is in use
			}
		}
	}
}

// retire has nothing be given out from an own part. It is given back when nothing of it is in use, which only who has it can
// tell.
func (m *Manager) retire(pool string, part netip.Prefix) {
	there := func(u Usage) bool { return u.Block.Overlaps(part) }
	if !slices.ContainsFunc(m.local.Usage(pool), there) {
		m.warn(m.local.Add(pool, part), "a block of no use is kept")
	}
	m.local.Drain(pool, part)
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
	for _, h := range m.own.holdings() {
		add(h.pool)
	}
	return names
}

// hold has the node own of one pool what it needs.
func (m *Manager) hold(ctx context.Context, name string) error {
	pool, known := m.notices.pools[name]
	var errs []error
	ours := known && pool.claimable(m.cfg.Labels)
	for _, f := range []family{ipv4, ipv6} {
		free, usage := m.usage(name, f)
		ahead := len(m.notices.wanted(name, f, m.cfg.Node)) == 0 && !m.generous(name, f) // others have none
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
