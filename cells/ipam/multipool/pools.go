package multipool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/internal/diskfile"
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

// savedPools are the accepted pools as this node has read them last, on its disk. An agent that starts without the store gives
// out addresses by them.
type savedPools struct {
	dir     string
	byName  map[string]cluster.Pool
	changed bool // since the file was written
}

// savedPool is an entry of the file. Earlier agents have written and read this form.
type savedPool struct {
	Pool cluster.Pool `json:"pool"`
}

func newSavedPools(dir string) *savedPools {
	return &savedPools{dir: dir, byName: map[string]cluster.Pool{}}
}

// load reads the file. Without a file there are no pools.
func (s *savedPools) load() error {
	path := filepath.Join(s.dir, savedPoolsFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var list []savedPool
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		return fmt.Errorf("read the pools that this node knows: %w: remove %s if it is damaged", err, path)
	}
	for _, one := range list {
		s.byName[one.Pool.Name] = one.Pool
	}
	return nil
}

// save writes the file if something has changed.
func (s *savedPools) save() error {
	if !s.changed {
		return nil
	}
	list := []savedPool{}
	for _, name := range slices.Sorted(maps.Keys(s.byName)) {
		list = append(list, savedPool{s.byName[name]})
	}
	text, err := json.Marshal(list)
	if err == nil {
		err = diskfile.Replace(filepath.Join(s.dir, savedPoolsFile), text)
	}
	if err != nil {
		return fmt.Errorf("write the pools that this node knows: %w", err)
	}
	s.changed = false
	return nil
}

// update copies the pools as they are known now, except for pools with a change that is not accepted yet.
func (s *savedPools) update(known *knownPools) {
	if !known.complete {
		return
	}
	for name, p := range known.byName {
		if was, ok := s.byName[name]; len(p.Pending) == 0 && (!ok || was.Version != p.Version) {
			s.byName[name], s.changed = p, true
		}
	}
	for name := range s.byName {
		if _, ok := known.byName[name]; !ok {
			delete(s.byName, name)
			s.changed = true
		}
	}
}

// poolCreator creates the default pool.
type poolCreator struct {
	cfg       Config
	backend   cluster.Backend
	history   *storeHistory
	pools     *knownPools
	addresses addresses
	warnings  *warnings
	clock     func() time.Duration
	log       *slog.Logger

	next time.Duration // when to try again
}

// create creates the pool. After [admin.ErrOverlap] it waits for Config.Interval, as each try lists all pools and blocks.
func (c *poolCreator) create(ctx context.Context) {
	if c.clock() < c.next {
		return
	}
	err := c.createDefault(ctx)
	c.warnings.note(err, "the default pool could not be created")
	if errors.Is(err, admin.ErrOverlap) {
		c.next = c.clock() + c.cfg.Interval
	}
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
	p, err := admin.NewPools(c.backend).Create(ctx, cluster.Pool{Name: DefaultPool, Prefixes: prefixes, Quarantine: cluster.DefaultQuarantine})
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
