package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node/tunnel"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/watchable"
)

// Reach says how pods of another node are reached.
type Reach string

// What there is.
const (
	ReachRoute    Reach = "route"     // a route by the node's address
	ReachTunnel   Reach = "tunnel"    // a route by the tunnel device
	ReachExternal Reach = "external"  // the network between the nodes knows: one of the two is configured so
	ReachOffLink  Reach = "off-link"  // left to the network between the nodes: the node's address is not on a link of this one
	ReachFamily   Reach = "no-family" // not: the node has no address of the family
)

// Routing is what became of the routes to other nodes.
type Routing struct {
	Reach map[netip.Prefix]Reach // of each block
	// Errors are of blocks that have no route or not the right one.
	Errors map[netip.Prefix]error
	// Tunnel is what is wrong with the tunnel, if there is to be one.
	Tunnel error
	// RemoteBlocksErr is why the datapath may not know the blocks of other nodes: then connections go through the stack.
	RemoteBlocksErr error
	Err             error // why nothing could be compared at all
}

// router keeps the routes to other nodes' pods.
type router struct {
	mode   cluster.RoutingMode
	peers  *Peers
	kernel *netlinkKernel
	tunnel *tunnel.Tunnel
	log    *slog.Logger
	state  watchable.Value[Routing]
	task   *task.Task

	addresses  *tunnelAddresses
	directPath DirectPath // nil: all connections go through the stack
	end        *watchable.Value[TunnelEnd]
	podMTU     atomic.Int64 // 0: not known

	mu        sync.Mutex            // held while routes are written
	begun     time.Time             // when everything was known for the first time; zero before
	needed    time.Time             // when a tunnel was needed last
	published map[netip.Prefix]bool // prefixes that the store has said to be of nodes
}

// keepTime is how long a route of no record stays after everything is known: a store that was wiped gets the records
// again from the agents of their nodes.
const keepTime = 10 * time.Minute

// routesPause is between two rounds at least, and routesInterval at most.
const (
	routesPause    = 50 * time.Millisecond
	routesInterval = 30 * time.Second
	tunnelInterval = time.Second // between two looks at the programs of the tunnel
)

func newRouter(mode cluster.RoutingMode, peers *Peers, kernel *netlinkKernel, t *tunnel.Tunnel, addresses *tunnelAddresses, directPath DirectPath, end *watchable.Value[TunnelEnd], log *slog.Logger) *router {
	r := &router{published: map[netip.Prefix]bool{}, mode: mode, peers: peers, kernel: kernel, tunnel: t, addresses: addresses, directPath: directPath, end: end, log: log}
	r.task = task.Retry(log, "node-route", watchPause, func(ctx context.Context) error {
		err := r.follow(ctx)
		if ctx.Err() == nil {
			r.state.Set(Routing{Err: err})
		}
		return err
	})
	return r
}

func (r *router) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	changes, err := r.kernel.Watch(ctx)
	if err != nil {
		cancel()
		return err
	}
	defer func() {
		cancel()
		drain(changes)
	}()
	for {
		view, viewChanged := r.peers.View()
		_, addressesChanged := r.addresses.addrs.Get()
		if err := r.reconcile(view); err != nil {
			return err
		}
		_ = task.Sleep(ctx, routesPause) // changes that come together are one round
		if err := r.wait(ctx, changes, viewChanged, addressesChanged); err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// wait returns when there may be something to do.
func (r *router) wait(ctx context.Context, changes, viewChanged, addressesChanged <-chan struct{}) error {
	tick := time.NewTimer(routesInterval)
	defer tick.Stop()
	check := time.NewTicker(tunnelInterval)
	defer check.Stop()
	for {
		select {
		case <-ctx.Done():
		case <-viewChanged:
		case <-addressesChanged:
		case <-tick.C:
		case <-check.C:
			if end, _ := r.end.Get(); end.Port == 0 || r.tunnel.Intact() {
				continue
			}
		case _, ok := <-changes:
			if !ok {
				return errWatchEnded
			}
		}
		return nil
	}
}

// reconcileNow is for who cannot wait for the task.
func (r *router) reconcileNow() error {
	view, _ := r.peers.View()
	return r.reconcile(view)
}

// reconcile makes the routes what the view says. Its error is that they cannot be listed.
func (r *router) reconcile(view View) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !view.Ready {
		return nil
	}
	if r.begun.IsZero() && !view.StoreAway {
		r.begun = time.Now()
	}
	inView := r.rememberPublished(view)
	uplinks, err := r.uplinkMTUs(view.Self.Addresses)
	if err != nil {
		return err
	}
	index, tunnelErr := 0, error(nil)
	if view.Self.Node.Key != "" { // else it is not known which blocks are its own
		index, tunnelErr = r.updateTunnel(view, uplinks)
	}
	r.updatePodMTU(uplinks, index != 0 || r.mode == cluster.RoutingVXLAN)
	have, err := r.kernel.routes()
	if err != nil {
		return err
	}
	want, state, err := r.desired(view, index, uplinks, have)
	if err != nil {
		return err
	}
	state.Tunnel = errors.Join(tunnelErr, r.addresses.Err())
	state.RemoteBlocksErr = r.setRemoteBlocks(view)
	r.writeRoutes(view, want, have, state)
	if tunnelErr == nil { // nothing is left of the others
		maps.DeleteFunc(r.published, func(dst netip.Prefix, _ bool) bool { return !inView[dst] && have[dst] == (hop{}) })
	}
	r.report(state)
	return nil
}

// writeRoutes makes the routes as wanted, and removes unwanted ones. Failures are among the state's errors.
func (r *router) writeRoutes(view View, want, have map[netip.Prefix]hop, state Routing) {
	for _, dst := range slices.SortedFunc(maps.Keys(want), netip.Prefix.Compare) {
		to, was := want[dst], have[dst]
		if to == was {
			continue
		}
		if err := r.write(dst, to, was); err != nil {
			state.Errors[dst] = err
		}
	}
	for dst, was := range have {
		if _, ok := want[dst]; ok || r.keepsRoute(view, dst, was, state) {
			continue
		}
		if err := r.kernel.removeRoute(dst, was); err != nil {
			state.Errors[dst] = fmt.Errorf("remove the route to %s: %w", dst, err)
			continue
		}
		r.log.Info("route to pods of another node removed", "cidr", dst, "via", was.via)
	}
}

// rememberPublished remembers the nodes' prefixes in the store. A lost prefix is still in the view, so a prefix that is
// not there any more was given up, or its node was deleted. It returns the view's prefixes.
func (r *router) rememberPublished(view View) map[netip.Prefix]bool {
	now := map[netip.Prefix]bool{}
	for _, p := range view.Peers {
		for _, block := range p.NodeNetwork.Blocks {
			now[block] = true
		}
		for _, addr := range p.Addresses {
			now[netip.PrefixFrom(addr, addr.BitLen())] = true
		}
	}
	if !view.StoreAway {
		maps.Copy(r.published, now)
		for _, prefix := range view.Deleted {
			r.published[prefix] = true
		}
	}
	return now
}

// setRemoteBlocks has the datapath know the other nodes' blocks. A node cannot have what is this one's.
func (r *router) setRemoteBlocks(view View) error {
	if r.directPath == nil || view.Self.Node.Key == "" { // then it is not known which blocks are its own
		return nil
	}
	var blocks []netip.Prefix
	for prefix, owner := range tunnelOwners(view) {
		if owner.Pods && owner.Local.IsValid() {
			blocks = append(blocks, prefix)
		}
	}
	return r.directPath.SetRemoteBlocks(blocks)
}

func (r *router) write(dst netip.Prefix, to, was hop) error {
	add := r.kernel.addRoute
	if was != (hop{}) {
		add = r.kernel.replaceRoute
	}
	err := add(dst, to)
	switch {
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("somebody else has a route to %s: it stays", dst)
	case err != nil:
		return fmt.Errorf("route to %s by %s: %w", dst, to.via, err)
	}
	r.log.Info("route to pods of another node", "cidr", dst, "via", to.via)
	return nil
}

// keepsRoute reports whether a route stays that no record asks for: its record may come again.
func (r *router) keepsRoute(view View, dst netip.Prefix, was hop, state Routing) bool {
	if was.throughTunnel() {
		if state.Reach[dst] == ReachTunnel || view.Self.Node.Key == "" { // it is right, or not known yet
			return true
		}
		owners, err := r.tunnel.Owners()
		owner, ok := owners[dst]
		return err != nil || ok && r.keepsOwner(view, dst, owner)
	}
	if _, known := state.Reach[dst]; known || r.published[dst] || r.mode == cluster.RoutingExternal || !r.begun.IsZero() && time.Since(r.begun) > keepTime {
		return false
	}
	if slices.ContainsFunc(view.Self.Blocks, dst.Overlaps) {
		return false
	}
	for of := range state.Reach {
		if of.Overlaps(dst) {
			return false
		}
	}
	for _, p := range view.Peers { // a block that a known node does not have any more
		if slices.Contains(p.Addresses, was.via) {
			return false
		}
	}
	return true
}

// desired says where packets to each block go. Until a peer has told the port of its tunnel, the routes that its blocks
// have stay, and none is made.
func (r *router) desired(view View, tunnelIndex int, uplinks map[netip.Addr]int, have map[netip.Prefix]hop) (map[netip.Prefix]hop, Routing, error) {
	want := map[netip.Prefix]hop{}
	state := Routing{Reach: map[netip.Prefix]Reach{}, Errors: map[netip.Prefix]error{}}
	for _, p := range view.Peers {
		links := map[netip.Addr]int{}
		for _, block := range p.Blocks {
			if view.Tunnels(p) {
				state.Reach[block] = ReachTunnel
				if p.TunnelPort == 0 {
					if was, ok := have[block]; ok {
						want[block] = was
					}
				} else if err := r.tunnelFault(view.Self, p, tunnelIndex); err != nil {
					state.Errors[block] = fmt.Errorf("no tunnel to node %s: %w", p.Node.Name, err)
				} else if tunnelIndex != 0 {
					want[block] = tunnelHop(tunnelIndex, block, view.Self, p, uplinks)
				}
				continue
			}
			reach, to, err := r.nativeHop(p, block, links)
			if err != nil {
				return nil, state, err
			}
			if state.Reach[block] = reach; reach == ReachRoute {
				want[block] = to
			}
		}
	}
	return want, state, nil
}

// nativeHop is the way to a block of the peer without a tunnel; links are the links of the peer's addresses as far as
// they were asked for.
func (r *router) nativeHop(p Peer, block netip.Prefix, links map[netip.Addr]int) (reach Reach, to hop, err error) {
	if r.mode == cluster.RoutingExternal || p.Routing == cluster.RoutingExternal {
		return ReachExternal, hop{}, nil
	}
	addr := p.Address(cluster.FamilyOf(block.Addr()))
	if !addr.IsValid() {
		return ReachFamily, hop{}, nil
	}
	index, known := links[addr]
	if !known {
		if index, err = r.kernel.onLink(addr); err != nil {
			return "", hop{}, err
		}
		links[addr] = index
	}
	if index == 0 {
		return ReachOffLink, hop{}, nil
	}
	return ReachRoute, hop{link: index, via: addr}, nil
}

// report has others know, and the log what is new.
func (r *router) report(state Routing) {
	was, _ := r.state.Get()
	for dst, err := range state.Errors {
		if old := was.Errors[dst]; old == nil || old.Error() != err.Error() {
			r.log.Warn("pods of another node may not be reached", "cidr", dst, "error", err)
		}
	}
	r.state.Set(state)
}
