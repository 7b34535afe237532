package embedded

import (
	"context"
	"fmt"
	"iter"
	"net/netip"

	"porin.dev/porin/cells/cluster"
)

const infoName = "info" // of the one record

// Backend returns the records in the store.
func (s *Store) Backend() cluster.Backend {
	node, same := cluster.NodeID.RecordName, func(name string) string { return name }
	return cluster.Backend{
		Nodes:     records[cluster.Node, cluster.NodeID]{cluster.NodeKind, node, "nodes/", "", s},
		Sessions:  sessions{records[cluster.Session, cluster.NodeID]{cluster.SessionKind, node, "sessions/", "/session", s}},
		Pools:     records[cluster.Pool, string]{cluster.PoolKind, same, "pools/", "", s},
		Blocks:    blocks{records[cluster.Block, netip.Prefix]{cluster.BlockKind, cluster.BlockName, "blocks/", "", s}},
		Info:      info{records[cluster.ClusterInfo, string]{cluster.InfoKind(infoName), same, "cluster/", "", s}},
		Networks:  published[cluster.NodeNetwork, cluster.NodeID]{records[cluster.NodeNetwork, cluster.NodeID]{cluster.NetworkKind, node, "networks/", "", s}},
		Endpoints: published[cluster.EndpointGroup, string]{records[cluster.EndpointGroup, string]{cluster.EndpointGroupKind, same, "endpoints/", "", s}},
	}
}

type sessions struct {
	records[cluster.Session, cluster.NodeID]
}

func (r sessions) Delete(_ context.Context, id cluster.NodeID) error {
	return r.store.change(r.key(id.RecordName()), "", func(string) error { return nil })
}

func (r sessions) Watch(ctx context.Context, id cluster.NodeID) (<-chan cluster.Change[cluster.Session], error) {
	return r.watch(ctx, func(e entry) bool { return e.name != id.RecordName() })
}

type published[T, Key any] struct {
	records[T, Key]
}

// Watch begins with a list, which is read from the file.
func (r published[T, Key]) Watch(ctx context.Context, _ cluster.Resume[T]) (<-chan cluster.Change[T], error) {
	return r.records.Watch(ctx)
}

type blocks struct {
	records[cluster.Block, netip.Prefix]
}

func (r blocks) Create(ctx context.Context, b cluster.Block) error {
	_, err := r.records.Create(ctx, b)
	return err
}

func (r blocks) Delete(_ context.Context, cidr netip.Prefix, claim string) error {
	name := cluster.BlockName(cidr)
	return r.store.change(r.key(name), "", func(was string) error {
		now, err := r.decode(name, was)
		if err == nil && now.Claim != claim {
			err = fmt.Errorf("it has another claim, of node %s: %w", now.Owner, cluster.ErrConflict)
		}
		return err
	})
}

func (r blocks) All(ctx context.Context, filter cluster.BlockFilter) iter.Seq2[cluster.Block, error] {
	return func(yield func(cluster.Block, error) bool) {
		for b, err := range r.records.All(ctx) {
			if (err != nil || filter.Match(b)) && !yield(b, err) {
				return
			}
		}
	}
}

type info struct {
	records[cluster.ClusterInfo, string]
}

func (r info) Get(context.Context) (i cluster.ClusterInfo, position cluster.Position, err error) {
	value, revision, err := r.store.get(r.key(infoName))
	if err == nil {
		i, err = r.decode(infoName, value)
	}
	return i, cluster.Position{Revision: revision}, err
}

func (r info) Recent(ctx context.Context) (cluster.ClusterInfo, cluster.Position, error) {
	return r.Get(ctx)
}
