package node

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/node/tunnel"
	"porin.dev/porin/internal/task"
	"porin.dev/porin/internal/watchable"
)

// Node is this node in the network of all nodes.
type Node struct {
	self      watchable.Value[Self]
	end       watchable.Value[TunnelEnd]
	kernel    *netlinkKernel
	tunnel    *tunnel.Tunnel
	addresses *tunnelAddresses
	rules     *task.Task
	peers     *Peers
	observer  *observer
	publisher *publisher // nil without other nodes
	router    *router
}

// New returns a node of the network namespace of the calling thread, which does nothing before its tasks run. Close
// ends it.
func New(cfg Config, from Sources, log *slog.Logger) (*Node, error) {
	addrs, err := cfg.addresses()
	if err = errors.Join(err, cfg.Validate()); err != nil {
		return nil, err
	}
	if from.Health == nil {
		from.Health = noHealth{}
	}
	if from.Kubernetes == nil {
		from.Kubernetes = noKubernetes{}
	}
	n := &Node{}
	if n.kernel, err = openKernel(); err != nil {
		return nil, err
	}
	n.tunnel = tunnel.New(tunnel.Config{BPFRoot: cfg.BPFRoot, Port: cfg.VXLANPort}, n.kernel.handle, n.kernel.namespace, log)
	n.rules = task.Forever(log, "node-tunnel-rules", n.tunnel.Rules().Run)
	n.addresses = newTunnelAddresses(from.Addresses, cfg.Dir, log)
	n.observer = newObserver(cfg.Name, addrs, from.Blocks, from.Kubernetes, n.kernel, from.Health, cluster.RoutingMode(cfg.Routing), &n.end, &n.self, log)
	n.peers = NewPeers(from.Backend, from.Cache, from.Kubernetes, &n.self, log)
	n.router = newRouter(cluster.RoutingMode(cfg.Routing), n.peers, n.kernel, n.tunnel, n.addresses, from.DirectPath, &n.end, log)
	if from.Backend != nil {
		n.publisher = newPublisher(from.Backend.Networks, n.peers, from.Backend.Info, cfg, log)
	}
	return n, nil
}

// Start begins to follow the other nodes before everything is restored, for cells that need them then. The tunnel
// device gets its addresses again, before another owner can ask for them; and if there can be none in mode vxlan, that
// is an error.
func (n *Node) Start() error {
	_, addrs, err := n.tunnel.Device()
	if err == nil {
		n.addresses.begin(addrs)
		err = n.router.prepare(n.observer)
	}
	if err != nil {
		return err
	}
	n.observer.task.Start(nil)
	n.peers.task.Start(nil)
	return nil
}

// Close is for after the tasks.
func (n *Node) Close() error { return errors.Join(n.tunnel.Close(), n.kernel.close()) }

// stop ends the tasks of Start, if they still run, and closes.
func (n *Node) stop(ctx context.Context) error {
	return errors.Join(task.StopAll(ctx, n.observer.task, n.peers.task), n.Close())
}

// Peers follow the other nodes.
func (n *Node) Peers() *Peers { return n.peers }

// Tasks are the loops.
func (n *Node) Tasks() []*task.Task {
	tasks := []*task.Task{n.observer.task, n.peers.task, n.router.task, n.addresses.task, n.rules}
	if t := n.publisherTask(); t != nil {
		tasks = append(tasks, t)
	}
	return tasks
}

// publisherTask is nil without other nodes.
func (n *Node) publisherTask() *task.Task {
	if n.publisher == nil {
		return nil
	}
	return n.publisher.task
}

// PodMTU is what fits on the way from a pod to other nodes; 0 when that is not known.
func (n *Node) PodMTU() int { return int(n.router.podMTU.Load()) }

// Routing says how the pods of the other nodes are reached.
func (n *Node) Routing() Routing {
	state, _ := n.router.state.Get()
	return state
}

// clearRemoval ends that the node counts as deleted.
func clearRemoval(ctx context.Context, store cluster.Info, id cluster.NodeID) error {
	info, _, err := store.Get(ctx)
	if errors.Is(err, cluster.ErrNotFound) || err == nil && !slices.Contains(info.Removed, id.Key) {
		return nil
	}
	if err == nil {
		info.Removed = slices.DeleteFunc(slices.Clone(info.Removed), func(key string) bool { return key == id.Key })
		_, err = store.Put(ctx, info)
	}
	return err
}
