package multipool

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/cluster"
)

// knownPools are the pools as the watch told them last. A new pool is none until it is accepted. It is not safe for concurrent use.
type knownPools struct {
	names    map[string]cluster.Pool
	complete bool // all were told once
	// doubtful are those that the watch says are gone. It may be late: they are read before they are forgotten.
	doubtful map[string]bool
}

func newKnownPools() knownPools {
	return knownPools{names: map[string]cluster.Pool{}, doubtful: map[string]bool{}}
}

// take takes in what the watch tells.
func (k *knownPools) take(change cluster.Change[cluster.Pool]) {
	switch change.Kind {
	case cluster.Snapshot:
		for name := range k.names {
			k.doubtful[name] = true
		}
		for _, p := range change.All {
			delete(k.doubtful, p.Name)
			k.put(p)
		}
		k.complete = true
	case cluster.Put:
		k.put(change.Item)
	case cluster.Deleted:
		k.doubtful[change.Name] = true
	}
}

func (k *knownPools) put(p cluster.Pool) {
	if p.State != cluster.PoolPending {
		k.names[p.Name] = p
	}
}

// read lists the pools if the watch has not told them yet, and reads those that it says are gone.
func (k *knownPools) read(ctx context.Context, pools cluster.Pools) error {
	if !k.complete {
		snapshot := cluster.Change[cluster.Pool]{Kind: cluster.Snapshot}
		for p, err := range pools.All(ctx) {
			if err != nil {
				return fmt.Errorf("list the pools: %w", err)
			}
			snapshot.All = append(snapshot.All, p)
		}
		k.take(snapshot)
	}
	for name := range k.doubtful {
		p, err := pools.Get(ctx, name)
		switch {
		case errors.Is(err, cluster.ErrNotFound):
			delete(k.names, name)
		case errors.Is(err, cluster.ErrUnreadable): // it stays as it was
		case err != nil:
			return fmt.Errorf("read pool %s: %w", name, err)
		default:
			k.names[name] = p
		}
		delete(k.doubtful, name)
	}
	return nil
}

// lack reports whether no pool as it is now has the block for a node with these labels. Before all pools were told it is false.
func (k *knownPools) lack(b ownBlock, labels map[string]string) bool {
	p, ok := k.names[b.Pool]
	return k.complete && (!ok || p.UID != b.PoolUID || !p.HasBlock(b.CIDR) || !p.Claimable(labels) || !p.Usable(b.CIDR))
}

// overlap reports whether a pool has addresses of the prefix, and not just as one of its blocks.
func (k *knownPools) overlap(cidr netip.Prefix) bool {
	for _, p := range k.names {
		for _, prefix := range slices.Concat(p.Prefixes, p.Pending) {
			if prefix.Overlaps(cidr) && !p.HasBlock(cidr) {
				return true
			}
		}
	}
	return false
}
