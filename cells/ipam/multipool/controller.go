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
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/task"
)

// Controller takes the calls of others, which wait for the next of the [rounds], and tells what the last one has left.
type Controller struct {
	task   *task.Task
	rounds *rounds // Controller uses its waiters, published and the allocator, which are safe for concurrent use
}

// common has the state that the parts of the task share. The task alone uses it.
type common struct {
	cfg        Config
	log        *slog.Logger
	backend    cluster.Backend
	clock      func() time.Duration // boot clock
	rng        *rand.Rand
	warnings   *warnings
	checkpoint *checkpoint
	addresses  addresses
	claims     *prometheus.CounterVec // of blocks that were tried, by result

	// Each uses only those above it.
	pools      *knownPools
	kubernetes *kubernetesNode
	blocks     *ownBlocks
	history    *storeHistory
	session    *session
}

// New returns a controller that gives its blocks to the allocator, and that does nothing before Start. clock is the
// boot clock: it continues while the machine sleeps, and is never set. node is nil without Kubernetes.
func New(cfg Config, backend cluster.Backend, node KubernetesNode, a *allocator.Allocator, clock func() time.Duration, log *slog.Logger) (*Controller, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without a boot ID, each start counts as one after a boot
	all := &common{
		cfg: cfg, log: log, backend: backend, clock: clock, rng: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())),
		warnings:   &warnings{log: log, last: map[string]string{}},
		checkpoint: &checkpoint{dir: cfg.Dir, boot: strings.TrimSpace(string(boot)), machine: machineID()},
		addresses:  addresses{Pools: a.Pools(), allocator: a, lowWatermark: int64(cfg.PreAllocate)},
		claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "porin_multipool_claims_total", Help: "Claims of blocks that were tried, by result: claimed, exists or error.",
		}, []string{"result"}),
		pools: newKnownPools(cfg.Labels),
	}
	all.kubernetes = &kubernetesNode{common: all, source: node}
	all.blocks, all.history, all.session = &ownBlocks{all}, &storeHistory{common: all}, &session{common: all}
	r := &rounds{
		common: all, waiters: &waiters{kicked: make(chan struct{}, 1)}, published: &published{},
		reconciler: &reconciler{common: all}, creator: &poolCreator{common: all}, releaser: &releaser{common: all},
	}
	r.membership = &membership{common: all, reconciler: r.reconciler}
	r.claimer = &claimer{common: all, membership: r.membership, reconciler: r.reconciler, publish: r.publish, searches: map[poolFamily]search{}}
	r.published.status.Store(&Status{})
	return &Controller{task: task.Forever(log, "multipool-reconcile", r.run), rounds: r}, nil
}

// Start reads the checkpoint and runs until Stop. The allocator must have the node's addresses in use before.
func (c *Controller) Start() error {
	if err := c.rounds.open(); err != nil {
		return err
	}
	c.task.Start(nil)
	return nil
}

// Stop ends what Start began, and waits for it as long as ctx lasts. The node keeps its blocks.
func (c *Controller) Stop(ctx context.Context) error { return c.task.Stop(ctx) }

// Refill claims a block of each family in which the pool has no free address here, or the blocks of the wanted
// addresses. It returns when they are claimed, or why they cannot be.
func (c *Controller) Refill(ctx context.Context, pool string, want ...netip.Addr) error {
	return c.rounds.waiters.await(ctx, &waiter{pool: pool, want: want}, patience)
}

// Reconcile reconciles the node's blocks with the store now.
func (c *Controller) Reconcile(ctx context.Context) error {
	err := c.rounds.waiters.await(ctx, &waiter{reconcile: true}, patience)
	if errors.Is(err, ErrRecovery) && c.Status().Connected {
		return nil // nothing is claimed, but the node's blocks are reconciled
	}
	return err
}

// recoveryRequestTime is how long BeginRecovery waits for calls to the store that are under way.
const recoveryRequestTime = 20 * time.Second

// BeginRecovery begins a recovery, before the store is restored from a backup. If the store does not answer it returns
// false: then the checkpoint has the request, and the agent begins the recovery before it claims a block, also after a
// restart.
func (c *Controller) BeginRecovery(ctx context.Context) (begun bool, err error) {
	// A round that begins later saves the request, so no claim of an earlier round is under way then.
	err = c.rounds.waiters.await(ctx, &waiter{recovery: true}, recoveryRequestTime)
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

// record logs a failure, or forgets it when err is nil.
func (w *warnings) record(err error, what string) {
	switch {
	case err == nil:
		delete(w.last, what)
	case !errors.Is(err, context.Canceled) && err.Error() != w.last[what]:
		w.last[what] = err.Error()
		w.log.Warn(what+"; next try soon", "error", err)
	}
}
