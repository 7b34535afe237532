package records

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"porin.dev/porin/cells/cluster"
)

// infoName is the name of the one record.
const infoName = "cluster"

// info is the record of the cluster.
type info struct {
	kind[cluster.ClusterInfo]
	store func(context.Context) (string, error) // which cluster the API server is of
}

// Get lists, because a list says where the store is also when there is no record.
func (s *info) Get(ctx context.Context) (none cluster.ClusterInfo, position cluster.Position, err error) {
	if position.Store, err = s.store(ctx); err != nil {
		return none, position, s.translate("read", err)
	}
	page, err := s.page(ctx, "metadata.name="+infoName, "")
	if err != nil {
		return none, position, s.translate("list", err)
	}
	if position.Revision, err = strconv.ParseUint(page.Version, 10, 64); err != nil {
		return none, position, fmt.Errorf("list %s: version %q: %w", s.resource(), page.Version, errors.Join(cluster.ErrUnavailable, err))
	}
	if len(page.Objects) == 0 {
		return none, position, cluster.ErrNotFound
	}
	record := page.Objects[0].Value
	return record.item, position, record.err
}

func (s *info) Put(ctx context.Context, i cluster.ClusterInfo) (cluster.ClusterInfo, error) {
	return s.put(ctx, i)
}

func (s *info) Watch(ctx context.Context) (<-chan cluster.Change[cluster.ClusterInfo], error) {
	return s.follow(ctx, "metadata.name="+infoName, false)
}
