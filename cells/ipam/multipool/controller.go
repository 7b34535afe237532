package multipool

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/fault"
)

// The errors that callers tell apart.
var (
	// ErrCloned is returned when another machine has the key of this node.
	ErrCloned = fault.New(fault.Conflict, "another machine has this node's key")
	// ErrRecovery is returned while nobody claims blocks, because the store has gone back.
	ErrRecovery = fault.New(fault.Unavailable, "the cluster's store has gone back, and not every node has confirmed its blocks: see porin ipam recover")
	// ErrReleasing is returned while an administrator deletes the node.
	ErrReleasing = fault.New(fault.Unavailable, "an administrator deletes this node")
	// ErrNoBlock is returned when nodes have claimed every block of a pool.
	ErrNoBlock = fault.New(fault.Exhausted, "every block of the pool is claimed")
)

// Controller claims blocks for this node and gives them back. One goroutine does all that the store is asked for.
type Controller struct {
	cfg       Config
	log       *slog.Logger
	backend   cluster.Backend
	addresses addresses
	clock     func() time.Duration // boot clock
	boot      string               // boot ID of the machine
	machine   string               // [machineID]
	rng       *rand.Rand
	meters    *meters

	kick    chan struct{} // holds a token while there may be something to do
	status  atomic.Pointer[Status]
	waiters waiters

	mu   sync.Mutex   // guards stop
	stop func() error // nil before Start

	// What is below belongs to the running goroutine.
	checkpoint checkpoint
	dirty      bool // the checkpoint has changed in what need not be on disk at once
	unsaved    bool // the checkpoint could not be written
	pools      knownPools
	nodes      otherNodes
	self       self
	rebooted   bool // the machine was, and the blocks were not yet compared with the store
	searches   searches
	idle       idleBlocks
	deletions  map[netip.Prefix]time.Duration // when a released block is to be deleted again
	resting    bool                           // a block is kept by the quarantine of its addresses alone
	nextCheck  time.Duration                  // of the end of a recovery
	// nextCompare is when blocks in conflict are compared again, and unknownCompared the last recovery in which blocks in this node's name
	// were looked for that it does not know; compareUnknown says that they are to be, for another reason.
	nextCompare     time.Duration
	nextPosition    time.Duration // when the store's position is read again
	unknownCompared recoveryID
	compareUnknown  bool
	warned          map[string]string // what was warned of last, until it is over
	proposed        string            // session of this agent, before it is in the store
}

// self is what the node knows of itself in the store.
type self struct {
	connected bool // the store has this node's record and session, and the blocks were compared
	record    cluster.Node
	session   cluster.Session
	info      cluster.Record
	cloned    error // another machine has the node's key
}

// New returns a controller that has not begun, and that gives its blocks to the allocator. clock is the boot clock: it goes on while the
// machine sleeps, and nobody sets it.
func New(cfg Config, backend cluster.Backend, a *allocator.Allocator, clock func() time.Duration, log *slog.Logger) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without one, each start is taken for one after a boot
	c := &Controller{
		cfg: cfg, log: log, backend: backend, addresses: addresses{a.Pools(), a}, clock: clock, boot: strings.TrimSpace(string(boot)), machine: machineID(),
		rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), meters: newMeters(), kick: make(chan struct{}, 1),
		pools: newKnownPools(), deletions: map[netip.Prefix]time.Duration{}, warned: map[string]string{},
	}
	c.searches = searches{clock, c.rng, cfg.SearchTime, map[poolFamily]search{}}
	c.idle = idleBlocks{clock, cfg.IdleTime, map[netip.Prefix]time.Duration{}, map[string]idleTime{}}
	c.status.Store(&Status{})
	return c, nil
}

// Kick has a round begin soon. It does not block.
func (c *Controller) Kick() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Start reads the checkpoint and runs until Stop. What is in use on the node has been restored in the allocator before.
func (c *Controller) Start() error {
	unlock, err := lockFolder(c.cfg.Dir)
	if err == nil {
		if err = c.load(); err != nil {
			err = errors.Join(err, unlock())
		}
	}
	if err != nil {
		c.waiters.refuse(err)
		return err
	}
	c.resume()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	c.mu.Lock()
	c.stop = sync.OnceValue(func() error { cancel(); <-ended; return unlock() })
	c.mu.Unlock()
	go func() {
		defer close(ended)
		c.run(ctx)
	}()
	return nil
}

// load reads what the node remembers.
func (c *Controller) load() (err error) {
	if c.checkpoint, err = loadCheckpoint(c.cfg); err == nil {
		c.nodes, err = loadOtherNodes(c.cfg.Dir)
	}
	return err
}

// Stop ends what Start began, and waits for it. What the node owns it keeps.
func (c *Controller) Stop(context.Context) error {
	c.mu.Lock()
	stop := c.stop
	c.mu.Unlock()
	if stop == nil {
		return nil
	}
	return stop()
}

// resume gives out from the blocks of the checkpoint before the store was asked: after a restart of the agent, but not after a boot of
// the machine, when somebody may have deleted the node meanwhile.
func (c *Controller) resume() {
	for _, p := range c.checkpoint.Pools {
		c.pools.names[p.Name] = p
		c.addresses.configure(p)
	}
	if c.checkpoint.Contested != "" {
		_ = c.fence(c.checkpoint.Contested)
	}
	c.rebooted = c.boot == "" || c.boot != c.checkpoint.Boot
	for _, b := range c.checkpoint.Blocks {
		if b.State != blockOwned && !b.State.inUseOnly() {
			continue
		}
		if err := c.addresses.Add(b.Pool, b.CIDR); err != nil {
			c.log.Warn("a block of the checkpoint is left alone", "cidr", b.CIDR, "error", err)
		}
		if c.rebooted || b.State.inUseOnly() {
			c.addresses.Drain(b.Pool, b.CIDR)
		}
	}
	c.publish()
}

// nextRound is the time until something is due that nobody tells.
func (c *Controller) nextRound() time.Duration {
	now, next := c.clock(), c.cfg.Interval
	if !c.self.connected {
		next = min(next, c.cfg.SearchTime/2+time.Duration(c.rng.Int64N(int64(c.cfg.SearchTime))))
	}
	if c.self.info.Recovery != nil {
		next = min(next, max(c.nextCheck-now, 0))
	}
	next = c.idle.next(next)
	if c.resting {
		next = min(next, c.cfg.Interval/10)
	}
	for _, at := range c.deletions {
		next = min(next, max(at-now, 0))
	}
	return max(next, time.Millisecond)
}

// round makes what this node holds what it should hold.
func (c *Controller) round(ctx context.Context) {
	waiting := c.waiters.all()
	if slices.ContainsFunc(waiting, func(w *waiter) bool { return w.compare }) {
		c.self.connected, c.compareUnknown = false, true
	}
	if c.hasConflict() && c.clock() >= c.nextCompare {
		c.nextCompare = c.clock() + c.cfg.Interval
		c.self.connected = false
	}
	err := c.connect(ctx)
	if err == nil {
		err = c.checkPosition(ctx)
	}
	if err == nil {
		err = c.pools.read(ctx, c.backend.Pools)
	}
	if err == nil {
		c.warn(c.restorePools(ctx), "a pool that the store has lost is not there")
		c.warn(c.createDefaultPool(ctx), "the pool that the configuration names is not there")
		c.configure()
		err = c.recover(ctx)
	}
	if err == nil {
		err = c.settle(ctx)
	} else if errors.Is(err, ErrRecovery) { // another node may wait for that, which uses the block
		c.warn(c.settle(ctx), "blocks that were given back are still in the store")
	}
	c.warn(err, "no block is claimed")
	if err == nil {
		c.reviewBlocks()
		c.warn(c.holdDefaultPool(ctx), "the default pool has too few free addresses on this node")
		for _, w := range waiting {
			c.waiters.answer(w, c.serve(ctx, w))
		}
		c.warn(c.giveBackIdle(ctx), "blocks that nobody needs are kept")
	} else {
		for _, w := range waiting {
			c.waiters.answer(w, err)
		}
	}
	c.warn(c.nodes.save(), "the disk does not have every node that this one has seen")
	if c.dirty {
		c.warn(c.save(), "the checkpoint is old")
	}
	c.publish()
}

// save writes the checkpoint. Who relies on what it says waits for it.
func (c *Controller) save() error {
	c.dirty = true
	if !c.rebooted { // a boot is over when the blocks were compared
		c.checkpoint.Boot, c.checkpoint.Machine = c.boot, c.machine
	}
	pools := map[string]cluster.Pool{}
	for _, p := range c.checkpoint.Pools {
		pools[p.Name] = p // one that the store has lost stays, for a recovery
	}
	maps.Copy(pools, c.pools.names)
	c.checkpoint.Pools = nil
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		if slices.ContainsFunc(c.checkpoint.Blocks, func(b ownBlock) bool { return b.Pool == name }) {
			c.checkpoint.Pools = append(c.checkpoint.Pools, pools[name])
		}
	}
	if err := c.checkpoint.save(c.cfg.Dir); err != nil {
		c.unsaved = true
		return err
	}
	c.dirty, c.unsaved = false, false
	return nil
}

// warn logs what the next round tries again, once as long as it is the same.
func (c *Controller) warn(err error, what string) {
	if err == nil {
		delete(c.warned, what)
	}
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	if text := err.Error(); text != c.warned[what] {
		c.warned[what] = text
		c.log.Warn(what+"; next try soon", "error", err)
	}
}
