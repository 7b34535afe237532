package clustertest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"porin.dev/porin/cells/cluster"
)

// Strict is a backend in memory that gives no more than the weakest real one must: a write of equal content changes nothing,
// watches break and begin again with a snapshot, skip states and tell kinds in any order, a deletion takes a while, lists are not of
// one moment, and a name that is no DNS name of 63 characters is refused.
type Strict struct {
	mu       sync.Mutex // guards the fields below, and the tables
	rng      *rand.Rand
	revision uint64
	term     uint64
	nodes    table[cluster.Node]
	sessions table[cluster.Session]
	pools    table[cluster.Pool]
	blocks   table[cluster.Block]
	info     table[cluster.Record]
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
	s.nodes = newTable(s, func(n cluster.Node) string { return n.ID.RecordName() }, func(n *cluster.Node) (*cluster.Version, *bool) { return &n.Version, &n.Deleting })
	s.sessions = newTable(s, func(n cluster.Session) string { return n.Node.RecordName() }, func(n *cluster.Session) (*cluster.Version, *bool) { return &n.Version, &n.Deleting })
	s.pools = newTable(s, func(p cluster.Pool) string { return p.Name }, func(p *cluster.Pool) (*cluster.Version, *bool) { return &p.Version, &p.Deleting })
	s.blocks = newTable(s, func(b cluster.Block) string { return cluster.BlockName(b.CIDR) }, func(b *cluster.Block) (*cluster.Version, *bool) { return new(cluster.Version), &b.Deleting })
	s.info = newTable(s, func(cluster.Record) string { return "info" }, func(r *cluster.Record) (*cluster.Version, *bool) { return &r.Version, new(bool) })
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
	}
}

// Writes counts the changes of records so far, and Lists the lists that somebody began.
func (s *Strict) Writes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// Lists counts the lists that somebody began.
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
	info     map[string]row[cluster.Record]
}

// Backup copies the store.
func (s *Strict) Backup() Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Backup{s.revision, maps.Clone(s.nodes.rows), maps.Clone(s.sessions.rows), maps.Clone(s.pools.rows), maps.Clone(s.blocks.rows), maps.Clone(s.info.rows)}
}

// Restore makes the store what it was at the backup, as a restored etcd is: revisions are given a second time. All watches break.
func (s *Strict) Restore(b Backup) { s.restore(b, b.revision) }

// RestoreAhead is Restore with revisions that nobody has seen yet: the position of the store does not tell that it has gone back.
func (s *Strict) RestoreAhead(b Backup) { s.restore(b, s.Writes()+b.revision+1) }

func (s *Strict) restore(b Backup, revision uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision, s.term = max(revision, b.revision), 1
	s.nodes.rows, s.sessions.rows, s.pools.rows = maps.Clone(b.nodes), maps.Clone(b.sessions), maps.Clone(b.pools)
	s.blocks.rows, s.info.rows = maps.Clone(b.blocks), maps.Clone(b.info)
	s.breakAll()
}

// Wipe makes the store empty.
func (s *Strict) Wipe() {
	s.Restore(Backup{
		nodes: map[string]row[cluster.Node]{}, sessions: map[string]row[cluster.Session]{}, pools: map[string]row[cluster.Pool]{},
		blocks: map[string]row[cluster.Block]{}, info: map[string]row[cluster.Record]{},
	})
}

func (s *Strict) breakAll() {
	s.nodes.breakWatches()
	s.sessions.breakWatches()
	s.pools.breakWatches()
	s.blocks.breakWatches()
	s.info.breakWatches()
}

// row is a record as it is stored.
type row[T any] struct {
	item     T
	revision uint64
	deleting bool
}

// table is the records of one kind.
type table[T any] struct {
	s      *Strict
	nameOf func(T) string
	meta   func(*T) (*cluster.Version, *bool)
	rows   map[string]row[T]
	broken chan struct{} // closed when watches break
	news   chan struct{} // closed at the next change
}

func newTable[T any](s *Strict, nameOf func(T) string, meta func(*T) (*cluster.Version, *bool)) table[T] {
	return table[T]{s, nameOf, meta, map[string]row[T]{}, make(chan struct{}), make(chan struct{})}
}

func (t *table[T]) breakWatches() {
	close(t.broken)
	t.broken = make(chan struct{})
}

// changed expects the lock.
func (t *table[T]) changed() {
	t.s.writes++
	close(t.news)
	t.news = make(chan struct{})
	if t.s.rng.IntN(20) == 0 {
		t.breakWatches()
	}
}

var dnsName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// read is the row as a user sees it.
func (t *table[T]) read(r row[T]) T {
	version, deleting := t.meta(&r.item)
	*version, *deleting = cluster.Version(strconv.FormatUint(r.revision, 10)), r.deleting
	return r.item
}

// bare is the item without what the store says of it, for comparisons.
func (t *table[T]) bare(item T) string {
	version, deleting := t.meta(&item)
	*version, *deleting = "", false
	return fmt.Sprintf("%+v", item)
}

func (t *table[T]) create(ctx context.Context, item T) (none T, err error) {
	name := t.nameOf(item)
	if len(name) > 63 || !dnsName.MatchString(name) {
		return none, fmt.Errorf("create %q: it is no DNS name of at most 63 characters", name)
	}
	if ctx.Err() != nil {
		return none, fmt.Errorf("%w: %w", cluster.ErrUnavailable, ctx.Err())
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if _, ok := t.rows[name]; ok {
		return none, cluster.ErrExists
	}
	t.s.revision++
	t.rows[name] = row[T]{item, t.s.revision, false}
	t.changed()
	return t.read(t.rows[name]), nil
}

func (t *table[T]) get(ctx context.Context, name string) (none T, err error) {
	if ctx.Err() != nil {
		return none, fmt.Errorf("%w: %w", cluster.ErrUnavailable, ctx.Err())
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	r, ok := t.rows[name]
	if !ok {
		return none, cluster.ErrNotFound
	}
	return t.read(r), nil
}

func (t *table[T]) update(ctx context.Context, item T) (none T, err error) {
	if ctx.Err() != nil {
		return none, fmt.Errorf("%w: %w", cluster.ErrUnavailable, ctx.Err())
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	name := t.nameOf(item)
	r, ok := t.rows[name]
	version, _ := t.meta(&item)
	if !ok || r.deleting || *version != cluster.Version(strconv.FormatUint(r.revision, 10)) {
		return none, cluster.ErrConflict
	}
	if t.bare(item) == t.bare(r.item) {
		return t.read(r), nil
	}
	t.s.revision++
	t.rows[name] = row[T]{item, t.s.revision, false}
	t.changed()
	return t.read(t.rows[name]), nil
}

// maxDeletion is how long a deletion takes at most.
const maxDeletion = 20 * time.Millisecond

// remove deletes the record if ok says so of it.
func (t *table[T]) remove(ctx context.Context, name string, ok func(row[T]) bool) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", cluster.ErrUnavailable, ctx.Err())
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	r, there := t.rows[name]
	switch {
	case !there:
		return nil
	case !ok(r):
		return cluster.ErrConflict
	case r.deleting:
		return nil
	}
	t.s.revision++
	if t.s.rng.IntN(2) == 0 {
		delete(t.rows, name)
		t.changed()
		return nil
	}
	r.deleting, r.revision = true, t.s.revision
	t.rows[name] = r
	t.changed()
	wait := time.Duration(t.s.rng.Int64N(int64(maxDeletion)))
	t.s.deleting.Go(func() { t.finish(name, r.revision, wait) })
	return nil
}

// finish ends a deletion that takes a while, unless the store was restored meanwhile.
func (t *table[T]) finish(name string, revision uint64, wait time.Duration) {
	select {
	case <-time.After(wait):
	case <-t.s.stopped.Done():
	}
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	if r, ok := t.rows[name]; ok && r.deleting && r.revision == revision {
		t.s.revision++
		delete(t.rows, name)
		t.changed()
	}
}

// all gives two records at a time, so that a list is not of one moment.
func (t *table[T]) all(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		t.s.mu.Lock()
		t.s.lists++
		t.s.mu.Unlock()
		for after, more := "", true; more; {
			var page []T
			page, after, more = t.page(after)
			if ctx.Err() != nil {
				var none T
				yield(none, fmt.Errorf("%w: %w", cluster.ErrUnavailable, ctx.Err()))
				return
			}
			for _, item := range page {
				if !yield(item, nil) {
					return
				}
			}
		}
	}
}

func (t *table[T]) page(after string) (page []T, last string, more bool) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	names := slices.Sorted(maps.Keys(t.rows))
	i, _ := slices.BinarySearch(names, after+"\x00")
	if after == "" {
		i = 0
	}
	end := min(i+64, len(names))
	for _, name := range names[i:end] {
		page, last = append(page, t.read(t.rows[name])), name
	}
	return page, last, end < len(names)
}

// watch tells what has changed since the last time, in random order; states in between are skipped.
func (t *table[T]) watch(ctx context.Context, selected func(name string) bool) (<-chan cluster.Change[T], error) {
	changes := make(chan cluster.Change[T])
	go func() {
		defer close(changes)
		for ctx.Err() == nil && t.s.stopped.Err() == nil {
			t.follow(ctx, selected, changes)
		}
	}()
	return changes, nil
}

// follow is one watch, until it breaks.
func (t *table[T]) follow(ctx context.Context, selected func(name string) bool, out chan<- cluster.Change[T]) {
	t.s.mu.Lock()
	broken, told := t.broken, map[string]uint64{}
	snapshot := cluster.Change[T]{Kind: cluster.Snapshot}
	for name, r := range t.rows {
		if selected(name) {
			told[name] = r.revision
			snapshot.All = append(snapshot.All, t.read(r))
		}
	}
	t.s.mu.Unlock()
	if !tell(ctx, t.s, out, snapshot) {
		return
	}
	for {
		t.s.mu.Lock()
		news := t.news
		changes := t.since(told, selected)
		t.s.mu.Unlock()
		for _, c := range changes {
			if !tell(ctx, t.s, out, c) {
				return
			}
		}
		select {
		case <-broken:
			return
		default:
		}
		select {
		case <-news:
		case <-broken:
			return
		case <-ctx.Done():
			return
		case <-t.s.stopped.Done():
			return
		}
	}
}

// since returns what differs from what was told, and takes it for told. It expects the lock.
func (t *table[T]) since(told map[string]uint64, selected func(name string) bool) (changes []cluster.Change[T]) {
	for name, r := range t.rows {
		if selected(name) && told[name] != r.revision {
			told[name] = r.revision
			changes = append(changes, cluster.Change[T]{Kind: cluster.Put, Name: name, Item: t.read(r)})
		}
	}
	for name := range told {
		if _, ok := t.rows[name]; !ok {
			delete(told, name)
			changes = append(changes, cluster.Change[T]{Kind: cluster.Deleted, Name: name})
		}
	}
	return changes
}

func tell[T any](ctx context.Context, s *Strict, out chan<- cluster.Change[T], c cluster.Change[T]) bool {
	select {
	case out <- c:
		return true
	case <-ctx.Done():
	case <-s.stopped.Done():
	}
	return false
}

func anyName(string) bool { return true }

// versionIs selects the row that a user has read.
func versionIs[T any](v cluster.Version) func(row[T]) bool {
	return func(r row[T]) bool { return cluster.Version(strconv.FormatUint(r.revision, 10)) == v }
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

type strictInfo struct{ *table[cluster.Record] }

func (s strictInfo) Get(ctx context.Context) (cluster.Record, cluster.Position, error) {
	r, err := s.get(ctx, "info")
	s.s.mu.Lock()
	defer s.s.mu.Unlock()
	return r, cluster.Position{Store: "strict", Term: s.s.term, Revision: s.s.revision}, err
}
func (s strictInfo) Put(ctx context.Context, r cluster.Record) (cluster.Record, error) {
	if r.Version == "" {
		return s.create(ctx, r)
	}
	return s.update(ctx, r)
}
func (s strictInfo) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Record], error) {
	return s.watch(ctx, anyName)
}
