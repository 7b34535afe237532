package multipool

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
)

// knownPools are the accepted pools, as the watch has told them last, or as the checkpoint has them before.
type knownPools struct {
	labels   map[string]string // of this node
	byName   map[string]cluster.Pool
	complete bool // all pools were told once
	// doubtful are pools that are gone by the watch. It may be late: they are read before they are forgotten.
	doubtful map[string]bool
}

func newKnownPools(labels map[string]string) *knownPools {
	return &knownPools{labels: labels, byName: map[string]cluster.Pool{}, doubtful: map[string]bool{}}
}

// apply applies a change that the watch tells, and reports whether it concerns an accepted pool.
func (k *knownPools) apply(change cluster.Change[cluster.Pool]) (news bool) {
	put := func(p cluster.Pool) {
		if p.State != cluster.PoolPending {
			k.byName[p.Name] = p
		}
	}
	switch change.Kind {
	case cluster.Snapshot:
		for name := range k.byName {
			k.doubtful[name] = true
		}
		for _, p := range change.All {
			delete(k.doubtful, p.Name)
			put(p)
		}
		k.complete = true
		return true
	case cluster.Put:
		put(change.Item)
		_, news = k.byName[change.Item.Name]
	case cluster.Deleted:
		if _, news = k.byName[change.Name]; news {
			k.doubtful[change.Name] = true
		}
	}
	return news
}

// read lists the pools if the watch has not told them yet, and reads the doubtful ones.
func (k *knownPools) read(ctx context.Context, pools cluster.Pools) error {
	if !k.complete {
		snapshot := cluster.Change[cluster.Pool]{Kind: cluster.Snapshot}
		for p, err := range cluster.Readable(pools.All(ctx)) { // as the watch does
			if err != nil {
				return fmt.Errorf("list the pools: %w", err)
			}
			snapshot.All = append(snapshot.All, p)
		}
		k.apply(snapshot)
	}
	for name := range k.doubtful {
		p, err := pools.Get(ctx, name)
		switch {
		case errors.Is(err, cluster.ErrNotFound):
			delete(k.byName, name)
		case errors.Is(err, cluster.ErrUnreadable): // it stays as it was
		case err != nil:
			return fmt.Errorf("read pool %s: %w", name, err)
		default:
			k.byName[name] = p
		}
		delete(k.doubtful, name)
	}
	return nil
}

// obsolete reports whether no pool as it is now has the block for this node. Before all pools were told it is false.
func (k *knownPools) obsolete(b OwnBlock) bool { return k.complete && !k.hasBlock(b) }

// hasBlock reports whether a pool has the block for this node, as far as is known.
func (k *knownPools) hasBlock(b OwnBlock) bool {
	p, ok := k.byName[b.Pool]
	return ok && p.UID == b.PoolUID && p.HasBlock(b.CIDR) && p.Claimable(k.labels) && p.Usable(b.CIDR)
}

// blockOf returns the pool and the block that the address lies in. Before all pools were told it returns none.
func (k *knownPools) blockOf(addr netip.Addr) (p cluster.Pool, cidr netip.Prefix, ok bool) {
	for _, p := range k.byName {
		if cidr, ok := p.BlockOf(addr); ok && k.complete {
			return p, cidr, true
		}
	}
	return p, cidr, false
}

// overlap reports whether the prefix overlaps a pool and is none of its blocks.
func (k *knownPools) overlap(cidr netip.Prefix) bool {
	for _, p := range k.byName {
		for _, prefix := range slices.Concat(p.Prefixes, p.Pending) {
			if prefix.Overlaps(cidr) && !p.HasBlock(cidr) {
				return true
			}
		}
	}
	return false
}

// configure gives the allocator the settings of all pools, and ends pools that do not exist.
func (k *knownPools) configure(a addresses) {
	if !k.complete {
		return
	}
	for _, p := range k.byName {
		a.configure(p)
	}
	for _, name := range a.Names() {
		if _, ok := k.byName[name]; !ok {
			a.DeletePool(name)
		}
	}
}

// poolCreator creates the default pool.
type poolCreator struct{ *common }

// create creates the pool of the configuration, once: it stays deleted if an administrator has deleted it.
func (c *poolCreator) create(ctx context.Context) error {
	prefixes, err := c.cfg.defaultPrefixes()
	if p, ok := c.pools.byName[DefaultPool]; ok && p.State != cluster.PoolPending || !c.pools.complete || len(prefixes) == 0 || err != nil {
		return err
	}
	// In a recovery nodes may have blocks of it that the store lacks. The record tells of a deletion before it is made.
	if info, _, err := c.backend.Info.Get(ctx); err != nil || info.Recovery != nil || info.DefaultPoolRemoved {
		return err
	}
	pool := cluster.Pool{Name: DefaultPool, Prefixes: prefixes, Quarantine: cluster.DefaultQuarantine}
	p, err := admin.NewPools(c.backend).Create(ctx, pool)
	if errors.Is(err, admin.ErrChanged) { // another agent was quicker, and may have been interrupted
		if p, err = c.backend.Pools.Get(ctx, DefaultPool); err == nil && p.State == cluster.PoolPending {
			p, err = admin.NewPools(c.backend).Resume(ctx, p)
		}
		if err != nil || p.State != cluster.PoolAccepted {
			return err
		}
	}
	if err == nil {
		c.pools.byName[p.Name] = p
		c.pools.configure(c.addresses)
	}
	return err
}
