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
	return cluster.Backend{
		Nodes:        nodes{kind[cluster.Node]{cluster.NodeKind, client, log, "PorinNode"}},
		Sessions:     sessions{kind[cluster.Session]{cluster.SessionKind, client, log, "PorinSession"}},
		Pools:        pools{kind[cluster.Pool]{cluster.PoolKind, client, log, "PorinPool"}},
		Blocks:       blocks{kind[cluster.Block]{cluster.BlockKind, client, log, "PorinBlock"}},
		ListsByOwner: true,
		Info:         &info{store: store, kind: kind[cluster.ClusterInfo]{cluster.InfoKind(infoName), client, log, "PorinCluster"}},
		Networks:     published[cluster.NodeNetwork]{kind[cluster.NodeNetwork]{cluster.NetworkKind, client, log, "PorinNetwork"}, false},
		Endpoints:    published[cluster.EndpointGroup]{kind[cluster.EndpointGroup]{cluster.EndpointGroupKind, client, log, "PorinEndpointGroup"}, true},
	}
}

type nodes struct{ kind[cluster.Node] }

func (s nodes) Create(ctx context.Context, n cluster.Node) (cluster.Node, error) {
	return s.create(ctx, n)
}
func (s nodes) Update(ctx context.Context, n cluster.Node) (cluster.Node, error) {
	return s.update(ctx, n)
}
func (s nodes) Delete(ctx context.Context, n cluster.Node) error       { return s.removeVersion(ctx, n) }
func (s nodes) All(ctx context.Context) iter.Seq2[cluster.Node, error] { return s.all(ctx, "") }

func (s nodes) Get(ctx context.Context, id cluster.NodeID) (cluster.Node, error) {
	n, _, err := s.get(ctx, id.RecordName())
	return n, err
}

func (s nodes) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Node], error) {
	return s.follow(ctx, "", false)
}

// conflictTries is how often a record is read again that has changed before its deletion.
const conflictTries = 5

// errConflicts is no [cluster.ErrConflict], which says that another claim has the place.
var errConflicts = fmt.Errorf("the API server says each time that the record has changed: %w", cluster.ErrUnavailable)

type sessions struct{ kind[cluster.Session] }

func (s sessions) Get(ctx context.Context, id cluster.NodeID) (cluster.Session, error) {
	session, _, err := s.get(ctx, id.RecordName())
	return session, err
}
func (s sessions) Put(ctx context.Context, session cluster.Session) (cluster.Session, error) {
	return s.put(ctx, session)
}
func (s sessions) All(ctx context.Context) iter.Seq2[cluster.Session, error] { return s.all(ctx, "") }

func (s sessions) Delete(ctx context.Context, id cluster.NodeID) error {
	for range conflictTries {
		session, err := s.Get(ctx, id)
		if errors.Is(err, cluster.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = s.removeVersion(ctx, session)
		}
		if !errors.Is(err, cluster.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("delete the session of node %s: %w", id, errConflicts)
}

func (s sessions) Watch(ctx context.Context, id cluster.NodeID) (<-chan cluster.Change[cluster.Session], error) {
	return s.follow(ctx, "metadata.name="+id.RecordName(), false)
}

type pools struct{ kind[cluster.Pool] }

func (s pools) Create(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	return s.create(ctx, p)
}
func (s pools) Get(ctx context.Context, name string) (cluster.Pool, error) {
	p, _, err := s.get(ctx, name)
	return p, err
}
func (s pools) Update(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	return s.update(ctx, p)
}
func (s pools) Delete(ctx context.Context, p cluster.Pool) error       { return s.removeVersion(ctx, p) }
func (s pools) All(ctx context.Context) iter.Seq2[cluster.Pool, error] { return s.all(ctx, "") }
func (s pools) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Pool], error) {
	return s.follow(ctx, "", false)
}

type blocks struct{ kind[cluster.Block] }

func (s blocks) Create(ctx context.Context, b cluster.Block) error {
	_, err := s.create(ctx, b)
	return err
}

func (s blocks) Get(ctx context.Context, cidr netip.Prefix) (cluster.Block, error) {
	b, _, err := s.get(ctx, cluster.BlockName(cidr))
	return b, err
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

type published[T any] struct {
	kind[T]
	byPage bool // there are so many that no process should have all of them in memory
}

func (s published[T]) Put(ctx context.Context, item T) (T, error)  { return s.put(ctx, item) }
func (s published[T]) Delete(ctx context.Context, item T) error    { return s.removeVersion(ctx, item) }
func (s published[T]) All(ctx context.Context) iter.Seq2[T, error] { return s.all(ctx, "") }

func (s published[T]) Watch(ctx context.Context) (<-chan cluster.Change[T], error) {
	return s.follow(ctx, "", s.byPage)
}
