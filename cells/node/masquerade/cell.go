package masquerade

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"

	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
)

// Module is the cell. It needs a [node.Node], and masquerades by a [Table] what the node's pods send to the outside.
func Module(cfg Config) fx.Option {
	return cell.Module("masquerade",
		fx.Supply(fx.Private, cfg),
		fx.Provide(newTable, newDriver, fx.Private),
		doctor.Check(func(t *Table) doctor.Checker { return NewChecker(t) }),
		supervisor.Tasks(func(d *driver) *task.Task { return d.apply }),
		supervisor.Tasks(func(t *Table, log *slog.Logger) *task.Task { return task.Forever(log, "masquerade-watch", t.Run) }),
		endpointmanager.Subscribe(func(d *driver) *driver { return d }),
		server.Report(func(t *Table) reporter { return reporter{t} }),
	)
}

func newTable(lc fx.Lifecycle, cfg Config, log *slog.Logger) (*Table, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	t := New(namespace, cfg, log)
	lc.Append(fx.StopHook(func() error { return errors.Join(t.Close(), namespace.Close()) }))
	return t, nil
}

// driver says whose packets are masqueraded: it follows the nodes, and pods that keep their addresses. It is an
// [endpoint.Subscriber].
type driver struct {
	table     *Table
	peers     *node.Peers
	endpoints endpointmanager.Lookup
	apply     *task.Task
}

func newDriver(t *Table, n *node.Node, endpoints endpointmanager.Lookup, log *slog.Logger) *driver {
	d := &driver{table: t, peers: n.Peers(), endpoints: endpoints}
	d.apply = task.Forever(log, "masquerade-apply", func(ctx context.Context) error { return d.follow(ctx, log) })
	return d
}

// follow applies what holds for the node and its peers. Before they are known, a previous agent's table stays.
func (d *driver) follow(ctx context.Context, log *slog.Logger) error {
	for ctx.Err() == nil {
		view, changed := d.peers.View()
		if err := d.set(view); err != nil { // Run tries again
			log.Error("traffic to the outside may leave with the addresses of pods", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return ctx.Err()
}

func (d *driver) set(view node.View) error {
	if !view.Ready || view.Self.Node.Key == "" { // whose pods are this node's is not known yet
		return nil
	}
	desired := Desired{Sources: view.Self.Blocks, Inside: hosts(view.Self.Addresses)}
	for _, p := range view.Peers {
		desired.Inside = append(desired.Inside, p.Blocks...)
		if !view.Tunnels(p) { // else the network between the nodes need not know pods
			desired.Inside = append(desired.Inside, hosts(p.Addresses)...)
		}
	}
	for _, ep := range d.endpoints.List() {
		if ep.Spec.NoMasquerade {
			desired.Pods = append(desired.Pods, ep.Addresses.List()...)
		}
	}
	return d.table.Apply(desired)
}

func hosts(addrs []netip.Addr) (prefixes []netip.Prefix) {
	for _, addr := range addrs {
		prefixes = append(prefixes, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return prefixes
}

// reporter is the cell's part of GET /v1/status.
type reporter struct{ table *Table }

// Report implements server.StatusReporter.
func (r reporter) Report(status *v1.Status) {
	s := r.table.Status()
	status.Network.Masquerade = v1.MasqueradeStatus{Families: s.Families, Excluded: s.Exclude, Connections: s.Connections}
	if s.Families == nil {
		status.Network.Masquerade.Families = []string{}
	}
	status.Network.Masquerade.Error = fault.Text(s.Err)
}

var _ endpoint.Subscriber = (*driver)(nil)

// EndpointCreated implements endpoint.Subscriber. A pod that keeps its addresses does so from its first packet.
func (d *driver) EndpointCreated(ep endpoint.Endpoint) { d.changed(ep) }

// EndpointRestored implements endpoint.Subscriber: the task applies what is restored.
func (d *driver) EndpointRestored(endpoint.Endpoint) {}

// EndpointUpdated implements endpoint.Subscriber.
func (d *driver) EndpointUpdated(endpoint.Endpoint) {}

// EndpointDeleted implements endpoint.Subscriber.
func (d *driver) EndpointDeleted(ep endpoint.Endpoint, _ endpoint.DeleteConfig) { d.changed(ep) }

// changed applies the present state. [Table.Run] tries failures again.
func (d *driver) changed(ep endpoint.Endpoint) {
	if ep.Spec.NoMasquerade {
		view, _ := d.peers.View()
		_ = d.set(view)
	}
}
