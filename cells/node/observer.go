package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/watchable"
)

// observer finds out what this node is.
type observer struct {
	name   string
	fixed  []netip.Addr // from the configuration
	blocks Blocks
	object Kubernetes
	kernel Kernel
	health Health
	mode   cluster.RoutingMode
	tunnel *watchable.Value[TunnelEnd]
	self   *watchable.Value[Self]
	log    *slog.Logger
	task   *task.Task
}

func newObserver(name string, fixed []netip.Addr, blocks Blocks, object Kubernetes, kernel Kernel, health Health, mode cluster.RoutingMode, tunnel *watchable.Value[TunnelEnd], self *watchable.Value[Self], log *slog.Logger) *observer {
	o := &observer{name: name, fixed: fixed, blocks: blocks, object: object, kernel: kernel, health: health, mode: mode, tunnel: tunnel, self: self, log: log}
	o.task = task.Retry(log, "node-observe", watchPause, o.follow)
	return o
}

// observePause is the time between two looks at the kernel without a notification, or after a failure.
const observePause = 30 * time.Second

func (o *observer) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	changes, err := o.kernel.Watch(ctx)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		drain(changes)
	}()
	for {
		id, prefixes, blocksChanged := o.blocks.Blocks()
		healthChanged := o.health.Changed()
		health := o.health.Addresses()
		tunnel, tunnelChanged := o.tunnel.Get()
		uid, _, objectChanged := o.object.Identity()
		addrs, err := o.addresses()
		if err != nil {
			return err
		}
		if id.Key == "" {
			id.Name = o.name
		}
		o.set(Self{Node: id, UID: uid, Addresses: addrs, Blocks: prefixes, Health: health, Routing: o.mode, Tunnel: tunnel})
		tick := time.NewTimer(observePause)
		select {
		case <-ctx.Done():
		case <-blocksChanged:
		case <-healthChanged:
		case <-tunnelChanged:
		case <-objectChanged:
		case <-tick.C:
		case _, ok := <-changes:
			if !ok {
				err = errWatchEnded
			}
		}
		tick.Stop()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// addresses has one address of each family: of the configuration, else the first InternalIP that an interface has, else
// the address of the default route.
func (o *observer) addresses() ([]netip.Addr, error) {
	addrs := slices.Clone(o.fixed)
	if len(addrs) == 2 {
		return addrs, nil
	}
	_, internalIPs, _ := o.object.Identity()
	local, err := o.kernel.Local(internalIPs)
	if err != nil {
		return nil, err
	}
	found, err := o.kernel.Addresses()
	if err != nil {
		return nil, fmt.Errorf("find the addresses of the node: %w", err)
	}
	for _, addr := range append(local, found...) {
		if !slices.ContainsFunc(addrs, func(has netip.Addr) bool { return has.Is4() == addr.Is4() }) {
			addrs = append(addrs, addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs, nil
}

// set has the others know, if anything is new.
func (o *observer) set(self Self) {
	self.Blocks = slices.SortedFunc(slices.Values(self.Blocks), netip.Prefix.Compare)
	was, _ := o.self.Get()
	if was.Node == self.Node && was.UID == self.UID && slices.Equal(was.Addresses, self.Addresses) && slices.Equal(was.Blocks, self.Blocks) && slices.Equal(was.Health, self.Health) && (was.Health == nil) == (self.Health == nil) && was.Routing == self.Routing && was.Tunnel.equal(self.Tunnel) {
		return
	}
	o.self.Set(self)
}
