package clustertest

import (
	"context"
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"sync"

	"porin.dev/porin/cells/cluster"
)

// Strict is a backend in memory that gives no more than the weakest real one must: a write of equal content changes
// nothing, watches break and begin again with a snapshot, skip states and tell kinds in any order, a deletion takes a
// while, lists are not of one moment, and a name that is no DNS name of 63 characters is refused.
type Strict struct {
	mu       sync.Mutex // guards the fields below, and the tables
	rng      *rand.Rand
	revision uint64
	term     uint64
	nodes    table[cluster.Node]
	sessions table[cluster.Session]
	pools    table[cluster.Pool]
	blocks   table[cluster.Block]
	info     table[cluster.ClusterInfo]
	networks table[cluster.NodeNetwork]
	groups   table[cluster.EndpointGroup]
	stop     context.CancelFunc
	stopped  context.Context
	deleting sync.WaitGroup
	writes   uint64
	lists    uint64
}

// NewStrict returns an empty store. Close ends what it does in the background.
func NewStrict(seed uint64) *Strict {
	s := &Strict{rng: rand.New(rand.NewPCG(seed, 7)), term: 1}
	s.stopped, s.stop = context.WithCancel(context.Background())
	s.nodes = newTable(s, cluster.NodeKind)
	s.sessions = newTable(s, cluster.SessionKind)
	s.pools = newTable(s, cluster.PoolKind)
	s.blocks = newTable(s, cluster.BlockKind)
	s.info = newTable(s, cluster.InfoKind("info"))
	s.networks = newTable(s, cluster.NetworkKind)
	s.groups = newTable(s, cluster.EndpointGroupKind)
	return s
}

// Close ends all watches and waits for deletions that take a while.
func (s *Strict) Close() {
	s.stop()
	s.deleting.Wait()
}

// Backend returns the store as its users see it.
func (s *Strict) Backend() cluster.Backend {
	return cluster.Backend{
		Nodes: strictNodes{&s.nodes}, Sessions: strictSessions{&s.sessions}, Pools: strictPools{&s.pools},
		Blocks: strictBlocks{&s.blocks}, Info: strictInfo{&s.info},
		Networks:  strictPublished[cluster.NodeNetwork]{&s.networks},
		Endpoints: strictPublished[cluster.EndpointGroup]{&s.groups},
	}
}

// Writes counts the changes of records so far, and Lists the lists that were begun.
func (s *Strict) Writes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Lists counts the lists that were begun.
func (s *Strict) Lists() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lists
}

// Backup is a copy of the store at a time.
type Backup struct {
	revision uint64
	nodes    map[string]row[cluster.Node]
	sessions map[string]row[cluster.Session]
	pools    map[string]row[cluster.Pool]
	blocks   map[string]row[cluster.Block]
	info     map[string]row[cluster.ClusterInfo]
	networks map[string]row[cluster.NodeNetwork]
	groups   map[string]row[cluster.EndpointGroup]
}

// Backup copies the store.
func (s *Strict) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Backup{
		s.revision, maps.Clone(s.nodes.rows), maps.Clone(s.sessions.rows), maps.Clone(s.pools.rows), maps.Clone(s.blocks.rows), maps.Clone(s.info.rows),
		maps.Clone(s.networks.rows), maps.Clone(s.groups.rows),
	}
}

// Restore makes the store what it was at the backup, as an API server with a restored etcd is: revisions are given a
// second time. All watches break.
func (s *Strict) Restore(b Backup) { s.restore(b, b.revision) }

// RestoreAhead is Restore with revisions that no client has seen yet: the position of the store does not tell that it
// was rolled back.
func (s *Strict) RestoreAhead(b Backup) { s.restore(b, s.Writes()+b.revision+1) }

func (s *Strict) restore(b Backup, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision, s.term = max(revision, b.revision), 1
	s.nodes.rows, s.sessions.rows, s.pools.rows = maps.Clone(b.nodes), maps.Clone(b.sessions), maps.Clone(b.pools)
	s.blocks.rows, s.info.rows = maps.Clone(b.blocks), maps.Clone(b.info)
	s.networks.rows, s.groups.rows = maps.Clone(b.networks), maps.Clone(b.groups)
	s.nodes.finishAll()
	s.sessions.finishAll()
	s.pools.finishAll()
	s.blocks.finishAll()
	s.info.finishAll()
	s.networks.finishAll()
	s.groups.finishAll()
	s.breakAll()
}

// Wipe makes the store empty.
func (s *Strict) Wipe() {
	s.Restore(Backup{
		nodes: map[string]row[cluster.Node]{}, sessions: map[string]row[cluster.Session]{}, pools: map[string]row[cluster.Pool]{},
		blocks: map[string]row[cluster.Block]{}, info: map[string]row[cluster.ClusterInfo]{},
		networks: map[string]row[cluster.NodeNetwork]{}, groups: map[string]row[cluster.EndpointGroup]{},
	})
}

func (s *Strict) breakAll() {
	s.nodes.breakWatches()
	s.sessions.breakWatches()
	s.pools.breakWatches()
	s.blocks.breakWatches()
	s.info.breakWatches()
	s.networks.breakWatches()
	s.groups.breakWatches()
}

type strictNodes struct{ *table[cluster.Node] }

func (s strictNodes) Create(ctx context.Context, n cluster.Node) (cluster.Node, error) {
	return s.create(ctx, n)
}
func (s strictNodes) Get(ctx context.Context, id cluster.NodeID) (cluster.Node, error) {
	return s.get(ctx, id.RecordName())
}
func (s strictNodes) Update(ctx context.Context, n cluster.Node) (cluster.Node, error) {
	return s.update(ctx, n)
}
func (s strictNodes) Delete(ctx context.Context, n cluster.Node) error {
	return s.remove(ctx, n.ID.RecordName(), versionIs[cluster.Node](n.Version))
}
func (s strictNodes) All(ctx context.Context) iter.Seq2[cluster.Node, error] { return s.all(ctx) }
func (s strictNodes) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Node], error) {
	return s.watch(ctx, anyName)
}

type strictSessions struct{ *table[cluster.Session] }

func (s strictSessions) Get(ctx context.Context, id cluster.NodeID) (cluster.Session, error) {
	return s.get(ctx, id.RecordName())
}
func (s strictSessions) Put(ctx context.Context, n cluster.Session) (cluster.Session, error) {
	if n.Version == "" {
		return s.create(ctx, n)
	}
	return s.update(ctx, n)
}
func (s strictSessions) Delete(ctx context.Context, id cluster.NodeID) error {
	return s.remove(ctx, id.RecordName(), func(row[cluster.Session]) bool { return true })
}
func (s strictSessions) All(ctx context.Context) iter.Seq2[cluster.Session, error] { return s.all(ctx) }
func (s strictSessions) Watch(ctx context.Context, id cluster.NodeID) (<-chan cluster.Change[cluster.Session], error) {
	return s.watch(ctx, func(name string) bool { return name == id.RecordName() })
}

type strictPools struct{ *table[cluster.Pool] }

func (s strictPools) Create(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	return s.create(ctx, p)
}
func (s strictPools) Get(ctx context.Context, name string) (cluster.Pool, error) {
	return s.get(ctx, name)
}
func (s strictPools) Update(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	return s.update(ctx, p)
}
func (s strictPools) Delete(ctx context.Context, p cluster.Pool) error {
	return s.remove(ctx, p.Name, versionIs[cluster.Pool](p.Version))
}
func (s strictPools) All(ctx context.Context) iter.Seq2[cluster.Pool, error] { return s.all(ctx) }
func (s strictPools) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Pool], error) {
	return s.watch(ctx, anyName)
}

type strictBlocks struct{ *table[cluster.Block] }

func (s strictBlocks) Create(ctx context.Context, b cluster.Block) error {
	_, err := s.create(ctx, b)
	return err
}
func (s strictBlocks) Get(ctx context.Context, cidr netip.Prefix) (cluster.Block, error) {
	return s.get(ctx, cluster.BlockName(cidr))
}
func (s strictBlocks) Delete(ctx context.Context, cidr netip.Prefix, claim string) error {
	return s.remove(ctx, cluster.BlockName(cidr), func(r row[cluster.Block]) bool { return r.item.Claim == claim })
}
func (s strictBlocks) All(ctx context.Context, filter cluster.BlockFilter) iter.Seq2[cluster.Block, error] {
	return func(yield func(cluster.Block, error) bool) {
		for b, err := range s.all(ctx) {
			if (err != nil || filter.Match(b)) && !yield(b, err) {
				return
			}
		}
	}
}

type strictInfo struct{ *table[cluster.ClusterInfo] }

func (s strictInfo) Get(ctx context.Context) (cluster.ClusterInfo, cluster.Position, error) {
	r, err := s.get(ctx, "info")
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	return r, cluster.Position{Store: "strict", Term: s.s.term, Revision: s.s.revision}, err
}
func (s strictInfo) Recent(ctx context.Context) (cluster.ClusterInfo, cluster.Position, error) {
	return s.Get(ctx)
}
func (s strictInfo) Put(ctx context.Context, r cluster.ClusterInfo) (cluster.ClusterInfo, error) {
	if r.Version == "" {
		return s.create(ctx, r)
	}
	return s.update(ctx, r)
}
func (s strictInfo) Watch(ctx context.Context) (<-chan cluster.Change[cluster.ClusterInfo], error) {
	return s.watch(ctx, anyName)
}

type strictPublished[T any] struct{ *table[T] }

func (s strictPublished[T]) Put(ctx context.Context, item T) (T, error) {
	if *s.Version(&item) == "" {
		return s.create(ctx, item)
	}
	return s.update(ctx, item)
}

func (s strictPublished[T]) Delete(ctx context.Context, item T) error {
	return s.remove(ctx, s.RecordName(item), versionIs[T](*s.Version(&item)))
}
func (s strictPublished[T]) All(ctx context.Context) iter.Seq2[T, error] { return s.all(ctx) }
func (s strictPublished[T]) Watch(ctx context.Context, _ cluster.Resume[T]) (<-chan cluster.Change[T], error) {
	return s.watch(ctx, anyName)
}
