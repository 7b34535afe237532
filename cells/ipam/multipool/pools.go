package multipool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
)

// knownPools are the accepted pools, as the watch has told them last.
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
	switch change.Kind {
	case cluster.Snapshot:
		for name := range k.byName {
			k.doubtful[name] = true
		}
		for _, p := range change.All {
			delete(k.doubtful, p.Name)
			k.put(p)
		}
		k.complete = true
		return true
	case cluster.Put:
		k.put(change.Item)
		_, news = k.byName[change.Item.Name]
	case cluster.Deleted:
		if _, news = k.byName[change.Name]; news {
			k.doubtful[change.Name] = true
		}
	}
	return news
}

func (k *knownPools) put(p cluster.Pool) {
	if p.State != cluster.PoolPending {
		k.byName[p.Name] = p
	}
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
func (k *knownPools) obsolete(b ownBlock) bool { return k.complete && !k.hasBlock(b) }

// hasBlock reports whether a pool has the block for this node, as far as is known.
func (k *knownPools) hasBlock(b ownBlock) bool {
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
	for _, name := range a.Requested() {
		if _, ok := k.byName[name]; !ok {
			a.Forget(name)
		}
	}
}

// seenPools are the pools as this node has seen them last, on its disk. When a pool is gone that nobody has deleted, or
// is as it was before a change, the store was rolled back.
type seenPools struct {
	dir     string
	byName  map[string]seenPool
	changed bool // since the file was written
}

// seenPool is a pool that was accepted.
type seenPool struct {
	Pool cluster.Pool `json:"pool"`
	// RolledBack is true when the store has lost the pool, or a change of it, until an administrator changes, creates
	// or deletes it.
	RolledBack bool `json:"rolledBack,omitempty"`
}

func newSeenPools(dir string) *seenPools { return &seenPools{dir: dir, byName: map[string]seenPool{}} }

// load reads the file. Without a file no pool was seen.
func (s *seenPools) load() error {
	var list []seenPool
	err := readSeen(s.dir, seenPoolsFile, &list)
	for _, one := range list {
		s.byName[one.Pool.Name] = one
	}
	return err
}

// save writes the file if something has changed.
func (s *seenPools) save() error {
	if !s.changed {
		return nil
	}
	list := []seenPool{}
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		list = append(list, s.byName[name])
	}
	err := writeSeen(s.dir, seenPoolsFile, list)
	s.changed = err != nil
	return err
}

func (s *seenPools) set(one seenPool) { s.byName[one.Pool.Name], s.changed = one, true }

func (s *seenPools) remove(name string) {
	delete(s.byName, name)
	s.changed = true
}

// rolledBack returns the pools that the store has lost, or changes of which it has lost, as they were before.
func (s *seenPools) rolledBack() (list []cluster.Pool) {
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		if one := s.byName[name]; one.RolledBack {
			list = append(list, one.Pool)
		}
	}
	return list
}

// poolCreator creates the default pool, and in a recovery the pools that the store has lost.
type poolCreator struct {
	cfg       Config
	backend   cluster.Backend
	history   *storeHistory
	pools     *knownPools
	seen      *seenPools
	addresses addresses
	warnings  *warnings
	clock     func() time.Duration
	log       *slog.Logger

	next time.Duration // when to try again
}

// create creates the pools. After [admin.ErrOverlap] it waits for Config.Interval, as each try lists all pools and
// blocks. Its error says that a lost pool is not created again and may be later: the node does not confirm its blocks
// before, as another node may create another default pool after the recovery.
func (c *poolCreator) create(ctx context.Context) error {
	if c.clock() < c.next {
		return nil
	}
	lost, configured := c.restoreLost(ctx), c.createDefault(ctx)
	c.warnings.note(lost, "a pool that the store has lost could not be created again")
	c.warnings.note(configured, "the default pool could not be created")
	if errors.Is(lost, admin.ErrOverlap) || errors.Is(configured, admin.ErrOverlap) {
		c.next = c.clock() + c.cfg.Interval
	}
	if errors.Is(lost, admin.ErrOverlap) || errors.Is(lost, cluster.ErrUnreadable) { // for people to mend
		return nil
	}
	return lost
}

// restoreLost creates, in a recovery, the pools that this node has seen and that the store has lost, as they were.
func (c *poolCreator) restoreLost(ctx context.Context) (overlaps error) {
	if c.history.info.Recovery == nil {
		return nil
	}
	for _, p := range c.seen.rolledBack() {
		if _, ok := c.pools.byName[p.Name]; ok {
			continue
		}
		restored, err := admin.NewPools(c.backend).Restore(ctx, p)
		if errors.Is(err, admin.ErrChanged) {
			restored, err = c.backend.Pools.Get(ctx, p.Name) // another node was quicker
		}
		if errors.Is(err, admin.ErrOverlap) {
			overlaps = errors.Join(overlaps, fmt.Errorf("pool %s: %w", p.Name, err))
			continue
		}
		if err != nil {
			return err
		}
		if restored.State != cluster.PoolPending {
			c.log.Warn("a pool that the store had lost was created again", "pool", p.Name)
			c.pools.byName[p.Name] = restored
		}
	}
	return overlaps
}

// createDefault creates the pool of the configuration, once: one that an administrator has deleted stays deleted.
func (c *poolCreator) createDefault(ctx context.Context) error {
	prefixes, err := c.cfg.defaultPrefixes()
	if p, ok := c.pools.byName[DefaultPool]; ok && p.State != cluster.PoolPending || !c.pools.complete || len(prefixes) == 0 || err != nil {
		return err
	}
	if may, err := c.history.mayCreateDefaultPool(ctx); !may || err != nil {
		return err
	}
	create := admin.NewPools(c.backend).Create
	p := cluster.Pool{Name: DefaultPool, Prefixes: prefixes, Quarantine: cluster.DefaultQuarantine}
	if was, ok := c.seen.byName[DefaultPool]; ok { // blocks that nodes have are of this one
		create, p = admin.NewPools(c.backend).Restore, was.Pool
	}
	p, err = create(ctx, p)
	if errors.Is(err, admin.ErrChanged) { // somebody else was quicker, and may have been interrupted
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
