package ipam

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/fx"

	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/watchable"
)

// NodeObject has the podCIDRs of the node's object at the Kubernetes API.
type NodeObject interface {
	// PodCIDRs returns them, and a channel that is closed when they change. It does not block.
	PodCIDRs() (PodCIDRs, <-chan struct{})
}

// PodCIDRs are prefixes of a node.
type PodCIDRs struct {
	Now    []netip.Prefix // the node allocates from them
	Former []netip.Prefix // pods may have addresses of them
	Err    error          // why the node allocates nothing now
}

// NodeCIDRs gives the allocator the podCIDRs of a [NodeObject], in mode pod-cidr with [Config].FromNode. Former
// podCIDRs are drained: pods keep their addresses, and the prefix is removed when it is free. It is the
// [allocator.Refiller]: allocations wait for podCIDRs.
type NodeCIDRs struct {
	object     NodeObject
	pools      allocator.Pools
	quarantine time.Duration
	log        *slog.Logger
	blocks     watchable.Value[[]netip.Prefix] // Now, and Former in use
	task       *task.Task

	mu       sync.Mutex // guards the fields below, and changes of the pool
	added    []netip.Prefix
	restored bool   // the allocator has the addresses of all endpoints
	bad      string // the last fault of a podCIDR
}

// NodeCIDRsModule provides [*NodeCIDRs] and the [allocator.Refiller] of [Module]. It needs a [NodeObject].
func NodeCIDRsModule(cfg Config) fx.Option {
	return fx.Options(
		fx.Provide(func(object NodeObject, a *allocator.Allocator, log *slog.Logger) (*NodeCIDRs, allocator.Refiller) {
			n := NewNodeCIDRs(object, a, cfg.Quarantine, log)
			return n, n
		}),
		supervisor.Tasks(func(n *NodeCIDRs) *task.Task { return n.task }),
	)
}

// NewNodeCIDRs adds the podCIDRs that are known to the allocator.
func NewNodeCIDRs(object NodeObject, a *allocator.Allocator, quarantine time.Duration, log *slog.Logger) *NodeCIDRs {
	n := &NodeCIDRs{object: object, pools: a.Pools(), quarantine: quarantine, log: log}
	n.task = task.Forever(log, "ipam-node-cidrs", n.run)
	_, _ = n.apply() // it logs an error
	return n
}

// drainInterval is the time between two looks whether a former podCIDR is free.
const drainInterval = time.Minute

// run is the task. It begins after the restore of endpoints, so a prefix without use is free.
func (n *NodeCIDRs) run(ctx context.Context) error {
	n.mu.Lock()
	n.restored = true
	n.mu.Unlock()
	for {
		changed, _ := n.apply() // it logs an error
		timer := time.NewTimer(drainInterval)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// apply adds and drains prefixes. Before the restore it removes none, and adds former ones, as endpoints may have
// addresses of them. The channel is closed when the Node has others.
func (n *NodeCIDRs) apply() (changed <-chan struct{}, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	cidrs, changed := n.object.PodCIDRs()
	wanted := slices.Clone(cidrs.Now)
	if !n.restored {
		wanted = append(wanted, cidrs.Former...)
	}
	var errs []error
	for _, cidr := range wanted {
		if cidrs.Err == nil || !slices.Contains(n.added, cidr) {
			errs = append(errs, n.addLocked(cidr))
		}
	}
	isBad := func(cidr netip.Prefix) bool { return !slices.Contains(n.added, cidr) }
	blocks := slices.DeleteFunc(slices.Clone(cidrs.Now), isBad)
	for _, cidr := range blocks {
		if cidrs.Err != nil {
			n.pools.Drain(allocator.DefaultPool, cidr)
		}
	}
	families := blocks // else of former prefixes, for addresses in quarantine
	if len(families) == 0 {
		families = cidrs.Former
	}
	if len(families) > 0 {
		has := func(is4 bool) bool {
			return slices.ContainsFunc(families, func(cidr netip.Prefix) bool { return cidr.Addr().Is4() == is4 })
		}
		n.pools.Configure(allocator.DefaultPool, allocator.Settings{Quarantine: n.quarantine, IPv4: has(true), IPv6: has(false)})
	}
	for _, cidr := range slices.Clone(n.added) {
		if slices.Contains(cidrs.Now, cidr) {
			continue
		}
		n.pools.Drain(allocator.DefaultPool, cidr)
		if !n.restored {
			continue
		}
		if err := n.pools.Remove(allocator.DefaultPool, cidr); errors.Is(err, allocator.ErrBlockInUse) {
			blocks = append(blocks, cidr)
			continue
		}
		n.added = slices.DeleteFunc(n.added, func(other netip.Prefix) bool { return other == cidr })
	}
	err = errors.Join(errs...)
	n.recordLocked(err)
	if last, _ := n.blocks.Get(); !slices.Equal(last, blocks) {
		n.blocks.Set(blocks)
	}
	return changed, err
}

func (n *NodeCIDRs) addLocked(cidr netip.Prefix) error {
	_, err := parsePrefix(cidr.String())
	if err == nil {
		err = n.pools.AddSubnet(allocator.DefaultPool, cidr)
	}
	if err != nil {
		return fmt.Errorf("podCIDR %s of the Node: %w", cidr, err)
	}
	if !slices.Contains(n.added, cidr) {
		n.added = append(n.added, cidr)
	}
	return nil
}

// recordLocked logs a fault once.
func (n *NodeCIDRs) recordLocked(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != n.bad {
		n.log.Error("a podCIDR of the Node cannot be used", "error", err)
	}
	n.bad = text
}

// Blocks returns the prefixes of the pods' addresses, and a channel that is closed when they change.
func (n *NodeCIDRs) Blocks() ([]netip.Prefix, <-chan struct{}) { return n.blocks.Get() }

// cidrWait is how long an allocation waits for podCIDRs.
const cidrWait = 3 * time.Second

// Refill implements [allocator.Refiller]. It waits until the Node has podCIDRs.
func (n *NodeCIDRs) Refill(ctx context.Context, _ string, _ ...netip.Addr) error {
	timeout := time.NewTimer(cidrWait)
	defer timeout.Stop()
	for {
		cidrs, changed := n.object.PodCIDRs()
		if cidrs.Err == nil {
			if _, err := n.apply(); err != nil {
				return fault.Wrap(fault.Unavailable, err)
			}
			return nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return fault.Wrap(fault.Unavailable, cidrs.Err)
		case <-ctx.Done():
			return fault.Wrap(fault.Unavailable, cidrs.Err)
		}
	}
}
