package multipool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/watchable"
)

// Controller claims blocks for this node and gives them back. See the package for its parts and their order.
type Controller struct {
	cfg       Config
	log       *slog.Logger
	backend   cluster.Backend
	addresses addresses
	clock     func() time.Duration // boot clock
	rng       *rand.Rand
	meters    *meters

	kick    chan struct{} // holds a token while there may be something to do
	status  atomic.Pointer[Status]
	owned   watchable.Value[owned]
	waiters waiters
	task    *task.Task

	// What is below belongs to the task. Each part uses those above it.
	unlock      func() error // of the node's folder; nil before it is open
	warnings    *warnings
	checkpoint  *checkpoint
	pools       *knownPools
	kubernetes  *kubernetesNode
	saved       *savedPools
	blocks      *ownBlocks
	history     *storeHistory
	session     *session
	reconciler  *reconciler
	membership  *membership
	poolCreator *poolCreator
	recovery    *recovery
	releaser    *releaser
	searcher    *searcher
	refiller    *refiller

	nextReconcile time.Duration // when blocks in conflict are reconciled again
	blocked       error         // why the last round claimed nothing
}

// New returns a controller that gives its blocks to the allocator, and that does nothing before Start. clock is the
// boot clock: it goes on while the machine sleeps, and nobody sets it. node is nil without Kubernetes.
func New(cfg Config, backend cluster.Backend, node KubernetesNode, a *allocator.Allocator, clock func() time.Duration, log *slog.Logger) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without a boot ID, each start counts as one after a boot
	c := &Controller{
		cfg: cfg, log: log, backend: backend, addresses: addresses{a.Pools(), a, int64(cfg.PreAllocate)}, clock: clock,
		rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), meters: newMeters(), kick: make(chan struct{}, 1),
		checkpoint: &checkpoint{dir: cfg.Dir, boot: strings.TrimSpace(string(boot)), machine: machineID()},
		pools:      newKnownPools(cfg.Labels), warnings: &warnings{log, map[string]string{}},
	}
	c.task = task.Forever(log, "multipool-reconcile", c.run)
	c.kubernetes = &kubernetesNode{source: node, checkpoint: c.checkpoint, pools: c.pools, log: log}
	c.blocks = &ownBlocks{c.checkpoint, c.addresses, c.pools, c.kubernetes, c.warnings, log}
	c.releaser = &releaser{cfg: cfg, store: backend.Blocks, checkpoint: c.checkpoint, blocks: c.blocks, clock: clock}
	c.history = &storeHistory{cfg: cfg, store: backend.Info, checkpoint: c.checkpoint, blocks: c.blocks, clock: clock, rng: c.rng, log: log}
	c.session = &session{cfg: cfg, store: backend.Sessions, checkpoint: c.checkpoint, addresses: c.addresses, history: c.history, log: log}
	c.saved = newSavedPools(cfg.Dir)
	c.reconciler = &reconciler{backend: backend, checkpoint: c.checkpoint, blocks: c.blocks, pools: c.pools, history: c.history, log: log}
	c.membership = &membership{backend, c.checkpoint, c.blocks, c.history, c.session, c.reconciler, c.kubernetes, log}
	c.recovery = &recovery{blocks: c.blocks, history: c.history, session: c.session, reconciler: c.reconciler, pools: c.pools}
	c.poolCreator = &poolCreator{
		cfg: cfg, backend: backend, history: c.history, pools: c.pools, addresses: c.addresses, warnings: c.warnings, clock: clock, log: log,
	}
	claimer := &claimer{backend, c.checkpoint, c.blocks, c.pools, c.saved, c.membership, c.reconciler, c.meters, c.publish, log}
	c.searcher = &searcher{
		store: backend.Blocks, checkpoint: c.checkpoint, blocks: c.blocks, nodes: backend.Nodes, claimer: claimer, warnings: c.warnings, meters: c.meters,
		rng: c.rng, searches: searches{clock, c.rng, cfg.SearchTime, map[poolFamily]search{}},
	}
	c.refiller = &refiller{int64(cfg.PreAllocate), backend, c.checkpoint, c.addresses, c.pools, claimer, c.searcher}
	c.waiters.kick = c.Kick
	c.status.Store(&Status{})
	return c, nil
}

// Kick makes a round begin soon. It does not block.
func (c *Controller) Kick() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Start reads the checkpoint and runs until Stop. What is in use on the node has been restored in the allocator before.
func (c *Controller) Start() error {
	if err := c.open(); err != nil {
		return err
	}
	c.task.Start(nil)
	return nil
}

// run is the controller's task. One whose folder cannot be read gives out nothing, and waits for its end.
func (c *Controller) run(ctx context.Context) error {
	if c.unlock == nil {
		if err := c.open(); err != nil {
			c.log.Error("no address is given out until the agent is started again", "error", err)
			c.addresses.Suspend(err)
			<-ctx.Done()
			return ctx.Err()
		}
	}
	for ctx.Err() == nil {
		c.listen(ctx)
	}
	if err := c.unlock(); err != nil {
		c.log.Warn("the folder of the node is not unlocked before the agent ends", "error", err)
	}
	return ctx.Err()
}

// open locks the node's folder and reads it.
func (c *Controller) open() error {
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
	c.unlock = unlock
	c.resume()
	return nil
}

// load reads the files of the node.
func (c *Controller) load() error {
	if err := c.checkpoint.load(c.cfg.Node); err != nil {
		return err
	}
	return c.saved.load()
}

// Stop ends what Start began, and waits for it as long as ctx lasts. The node keeps its blocks.
func (c *Controller) Stop(ctx context.Context) error { return c.task.Stop(ctx) }

// resume gives out addresses of the pools and blocks that the files have, before the store was asked.
func (c *Controller) resume() {
	c.kubernetes.read()
	for _, p := range c.saved.byName {
		c.pools.byName[p.Name] = p
		c.addresses.configure(p)
	}
	if c.checkpoint.Contested != "" {
		_ = c.session.contest(c.checkpoint.Contested)
	}
	c.blocks.resume()
	c.publish()
}

// Refill claims a block of each family of which the pool has no free address here, or the blocks of the wanted
// addresses. It returns when they are claimed, or why they cannot be.
func (c *Controller) Refill(ctx context.Context, pool string, want ...netip.Addr) error {
	return c.waiters.await(ctx, &waiter{pool: pool, want: want}, patience)
}

// Reconcile reconciles the node's blocks with the store now.
func (c *Controller) Reconcile(ctx context.Context) error {
	err := c.waiters.await(ctx, &waiter{reconcile: true}, patience)
	if errors.Is(err, ErrRecovery) && c.Status().Connected {
		return nil // nothing is claimed, but the node's blocks are reconciled
	}
	return err
}

// BeginRecovery begins a recovery, before the store is restored from a backup. If the store does not answer it returns
// false: then the checkpoint has the request, and the agent begins the recovery before it claims a block, also after a
// restart.
func (c *Controller) BeginRecovery(ctx context.Context) (begun bool, err error) {
	// A round that begins later saves the request, so no claim of an earlier round is under way then.
	err = c.waiters.await(ctx, &waiter{recovery: true}, recoveryRequestTime)
	switch s := c.Status(); {
	case err == nil, errors.Is(err, ErrRecovery) && !s.RecoveryRequested:
		return true, nil
	case s.RecoveryRequested:
		return false, ctx.Err()
	}
	return false, fmt.Errorf("request a recovery: %w", err)
}

// RecoveryRequested reports whether a recovery is requested that this agent has not begun.
func (c *Controller) RecoveryRequested() bool { return c.Status().RecoveryRequested }

// warnings logs failures that the next round tries again, each once while it stays the same.
type warnings struct {
	log  *slog.Logger
	last map[string]string // text of the last failure, by what has failed
}

// note logs a failure, or notes that it is over when err is nil.
func (w *warnings) note(err error, what string) {
	if err == nil {
		delete(w.last, what)
	}
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	if text := err.Error(); text != w.last[what] {
		w.last[what] = text
		w.log.Warn(what+"; next try soon", "error", err)
	}
}
