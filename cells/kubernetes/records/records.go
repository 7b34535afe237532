package records

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"porin.dev/porin/cells/cluster"
)

// New returns the backend. The client is one of the group of [Version], and speaks JSON; store says which cluster the
// API server is of.
func New(client rest.Interface, store func(context.Context) (string, error), log *slog.Logger) cluster.Backend {
	node, same := cluster.NodeID.RecordName, func(name string) string { return name }
	session := kind[cluster.Session]{cluster.SessionKind, client, log, "PorinSession", false}
	block := kind[cluster.Block]{cluster.BlockKind, client, log, "PorinBlock", false}
	return cluster.Backend{
		Nodes:        named[cluster.Node, cluster.NodeID]{kind[cluster.Node]{cluster.NodeKind, client, log, "PorinNode", false}, node},
		Sessions:     sessions{named[cluster.Session, cluster.NodeID]{session, node}},
		Pools:        named[cluster.Pool, string]{kind[cluster.Pool]{cluster.PoolKind, client, log, "PorinPool", false}, same},
		Blocks:       blocks{named[cluster.Block, netip.Prefix]{block, cluster.BlockName}},
		ListsByOwner: true,
		Info:         &info{store: store, kind: kind[cluster.ClusterInfo]{cluster.InfoKind(infoName), client, log, "PorinCluster", false}},
		Networks:     published[cluster.NodeNetwork]{kind[cluster.NodeNetwork]{cluster.NetworkKind, client, log, "PorinNetwork", false}},
		Endpoints:    published[cluster.EndpointGroup]{kind[cluster.EndpointGroup]{cluster.EndpointGroupKind, client, log, "PorinEndpointGroup", true}},
	}
}

// named is a kind whose records have names of a type of their own.
type named[T, Key any] struct {
	kind[T]
	nameOf func(Key) string
}

func (n named[T, Key]) Get(ctx context.Context, key Key) (T, error) {
	item, _, err := n.get(ctx, n.nameOf(key))
	return item, err
}

// conflictTries is how often a record is read again that has changed before its deletion.
const conflictTries = 5

// errConflicts is no [cluster.ErrConflict], which says that another claim has the place.
var errConflicts = fmt.Errorf("the API server says each time that the record has changed: %w", cluster.ErrUnavailable)

type sessions struct {
	named[cluster.Session, cluster.NodeID]
}

func (s sessions) Delete(ctx context.Context, id cluster.NodeID) error {
	for range conflictTries {
		session, err := s.Get(ctx, id)
		if errors.Is(err, cluster.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = s.kind.Delete(ctx, session)
		}
		if !errors.Is(err, cluster.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("delete the session of node %s: %w", id, errConflicts)
}

func (s sessions) Watch(ctx context.Context, id cluster.NodeID) (<-chan cluster.Change[cluster.Session], error) {
	return s.follow(ctx, "metadata.name="+id.RecordName(), cluster.Resume[cluster.Session]{})
}

// published is a kind whose watches can go on from an earlier one.
type published[T any] struct{ kind[T] }

func (p published[T]) Watch(ctx context.Context, from cluster.Resume[T]) (<-chan cluster.Change[T], error) {
	return p.follow(ctx, "", from)
}

type blocks struct {
	named[cluster.Block, netip.Prefix]
}

func (s blocks) Create(ctx context.Context, b cluster.Block) error {
	_, err := s.kind.Create(ctx, b)
	return err
}

func (s blocks) Delete(ctx context.Context, cidr netip.Prefix, claim string) error {
	name := cluster.BlockName(cidr)
	for range conflictTries {
		now, uid, err := s.get(ctx, name)
		switch {
		case errors.Is(err, cluster.ErrNotFound):
			return nil
		case err != nil:
			return err
		case now.Claim != claim:
			return fmt.Errorf("block %s has another claim, of node %s: %w", cidr, now.Owner, cluster.ErrConflict)
		}
		err = s.remove(ctx, name, metav1.Preconditions{UID: &uid}) // a record never changes, but another may have its place by now
		if !errors.Is(err, cluster.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("delete block %s: %w", cidr, errConflicts)
}

func (s blocks) All(ctx context.Context, filter cluster.BlockFilter) iter.Seq2[cluster.Block, error] {
	selected := fields.Set{}
	if filter.Pool != "" {
		selected["spec.pool"] = filter.Pool
	}
	if filter.Owner != (cluster.NodeID{}) {
		selected["spec.owner.key"] = filter.Owner.Key
	}
	return func(yield func(cluster.Block, error) bool) {
		for b, err := range s.all(ctx, selected.String()) {
			if (err != nil || filter.Match(b)) && !yield(b, err) {
				return
			}
		}
	}
}
