package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"porin.dev/porin/cells/store"
)

// formVersion is that of the records' JSON. See [store.Encode] for when it grows.
const formVersion = 1

// OnStore returns the backend in the embedded store or in etcd.
func OnStore(s store.Store) Backend {
	return Backend{
		Nodes: nodesOnStore{records[Node]{
			s, "nodes/", func(n Node) string { return n.ID.RecordName() }, func(n *Node) *Version { return &n.Version },
			func(name string) Node { return Node{ID: nodeIDNamed(name)} }, checkNode,
		}},
		Sessions: sessionsOnStore{records[Session]{
			s, "sessions/", func(n Session) string { return sessionKey(n.Node) }, func(n *Session) *Version { return &n.Version },
			func(key string) Session { return Session{Node: nodeIDNamed(strings.TrimSuffix(key, sessionSuffix))} }, checkSession,
		}},
		Pools: poolsOnStore{records[Pool]{
			s, "pools/", func(p Pool) string { return p.Name }, func(p *Pool) *Version { return &p.Version },
			func(name string) Pool { return Pool{Name: name} }, checkPool,
		}},
		Blocks: blocksOnStore{records[Block]{
			s, "blocks/", func(b Block) string { return BlockName(b.CIDR) }, func(*Block) *Version { return new(Version) },
			func(name string) Block { return Block{CIDR: cidrNamed(name)} }, checkBlock,
		}},
		Info: infoOnStore{records[ClusterInfo]{
			s, "cluster/", func(ClusterInfo) string { return infoKey }, func(r *ClusterInfo) *Version { return &r.Version },
			func(string) ClusterInfo { return ClusterInfo{} }, func(ClusterInfo) error { return nil },
		}},
		Networks: publishedOnStore[NodeNetwork]{records[NodeNetwork]{
			s, "networks/", func(n NodeNetwork) string { return n.Node.RecordName() }, func(n *NodeNetwork) *Version { return &n.Version },
			func(name string) NodeNetwork { return NodeNetwork{Node: nodeIDNamed(name)} }, NodeNetwork.Validate,
		}},
		Endpoints: groupsOnStore{publishedOnStore[EndpointGroup]{records[EndpointGroup]{
			s, "endpoints/", EndpointGroup.RecordName, func(g *EndpointGroup) *Version { return &g.Version }, groupNamed, EndpointGroup.Validate,
		}}},
	}
}

const infoKey = "info"

// sessionKey is a folder of its own, because a store watches folders.
func sessionKey(id NodeID) string { return id.RecordName() + sessionSuffix }

const sessionSuffix = "/session"

// records are those of one kind, below a prefix. The version of a record is its value.
type records[T any] struct {
	store   store.Store
	prefix  string
	nameOf  func(T) string
	version func(*T) *Version
	named   func(name string) T // what is known of a record that cannot be read
	check   func(T) error
}

func (r records[T]) create(ctx context.Context, item T) (T, error) {
	value, err := store.Encode(formVersion, item)
	if err == nil {
		err = r.store.Create(ctx, r.prefix+r.nameOf(item), value)
	}
	*r.version(&item) = Version(value)
	return item, translate(err)
}

func (r records[T]) get(ctx context.Context, name string) (item T, err error) {
	entry, err := r.store.Get(ctx, r.prefix+name)
	if err != nil {
		return item, translate(err)
	}
	return r.decode(entry)
}

func (r records[T]) decode(entry store.Entry) (T, error) {
	var none T
	item, err := store.Decode[T](entry, formVersion)
	if err != nil {
		return none, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if name := r.nameOf(item); r.prefix+name != entry.Key {
		return none, fmt.Errorf("%w: %s says that it is %s", ErrUnreadable, entry.Key, name)
	}
	if err := r.check(item); err != nil {
		return none, fmt.Errorf("%w: value of %s: %w", ErrUnreadable, entry.Key, err)
	}
	*r.version(&item) = Version(entry.Value)
	return item, nil
}

func (r records[T]) update(ctx context.Context, item T) (T, error) {
	was := *r.version(&item)
	value, err := store.Encode(formVersion, item)
	if err == nil {
		err = r.store.Replace(ctx, r.prefix+r.nameOf(item), []byte(was), value)
	}
	*r.version(&item) = Version(value)
	return item, translate(err)
}

// put creates an item without a version, and else updates it.
func (r records[T]) put(ctx context.Context, item T) (T, error) {
	if *r.version(&item) == "" {
		return r.create(ctx, item)
	}
	return r.update(ctx, item)
}

func (r records[T]) remove(ctx context.Context, item T) error {
	return translate(r.store.Remove(ctx, r.prefix+r.nameOf(item), []byte(*r.version(&item))))
}

// pageSize is how many records one answer has.
const pageSize = 500

// entries lists what is below the prefix, page by page.
func (r records[T]) entries(ctx context.Context) iter.Seq2[store.Entry, error] {
	return func(yield func(store.Entry, error) bool) {
		for after, more := "", true; more; {
			var page []store.Entry
			var err error
			if page, more, err = r.store.Page(ctx, r.prefix, after, pageSize); err != nil {
				yield(store.Entry{}, translate(err))
				return
			}
			for _, e := range page {
				after = e.Key
				if !yield(e, nil) {
					return
				}
			}
		}
	}
}

// all tells a record that cannot be read as an error, and goes on.
func (r records[T]) all(ctx context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for entry, err := range r.entries(ctx) {
			var item T
			if err == nil {
				item, err = r.decode(entry)
			}
			if errors.Is(err, ErrUnreadable) {
				item = r.named(strings.TrimPrefix(entry.Key, r.prefix))
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// watch is watchPages with a list in one piece.
func (r records[T]) watch(ctx context.Context, folder string) (<-chan Change[T], error) {
	var pages []T
	return r.watchPages(ctx, folder, func(c *Change[T]) bool {
		if c.Kind != Snapshot {
			return true
		}
		if c.Continues {
			c.All = append(pages, c.All...)
		}
		if pages = nil; c.More {
			pages = c.All
			return false
		}
		c.Continues = false
		return true
	})
}

// watchPages leaves out records that cannot be read, and changes that are not to be told.
func (r records[T]) watchPages(ctx context.Context, folder string, tell func(*Change[T]) bool) (<-chan Change[T], error) {
	events, err := r.store.Watch(ctx, r.prefix+folder)
	if err != nil {
		return nil, translate(err)
	}
	changes := make(chan Change[T])
	go func() {
		defer close(changes)
		for event := range events {
			change, ok := r.change(event)
			if !ok || !tell(&change) {
				continue
			}
			select {
			case changes <- change:
			case <-ctx.Done():
				for range events { // closed soon
				}
				return
			}
		}
	}()
	return changes, nil
}

func (r records[T]) change(event store.Event) (change Change[T], ok bool) {
	switch event.Type {
	case store.Resync:
		change.Kind, change.Continues, change.More = Snapshot, event.Continues, event.More
		for _, entry := range event.Entries {
			if item, err := r.decode(entry); err == nil {
				change.All = append(change.All, item)
			}
		}
		return change, true
	case store.Deleted:
		return Change[T]{Kind: Deleted, Name: r.nameIn(event.Entry.Key)}, true
	default:
		item, err := r.decode(event.Entry)
		return Change[T]{Kind: Put, Name: r.nameIn(event.Entry.Key), Item: item}, err == nil
	}
}

// nameIn is the name of the record with that key; a session has the name of its node.
func (r records[T]) nameIn(key string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, r.prefix), "/")
	return name
}

// renamed has the text of an error of the store, and is one of this package, too.
type renamed struct {
	error
	name error
}

func (r renamed) Unwrap() []error { return []error{r.name, r.error} }

// translate gives the errors of the store the names that they have here.
func translate(err error) error {
	for from, to := range map[error]error{
		store.ErrNotFound: ErrNotFound, store.ErrExists: ErrExists, store.ErrConflict: ErrConflict, store.ErrUnavailable: ErrUnavailable,
	} {
		if errors.Is(err, from) {
			return renamed{err, to}
		}
	}
	return err
}

type nodesOnStore struct{ records[Node] }

func (s nodesOnStore) Create(ctx context.Context, n Node) (Node, error) { return s.create(ctx, n) }
func (s nodesOnStore) Update(ctx context.Context, n Node) (Node, error) { return s.update(ctx, n) }
func (s nodesOnStore) Delete(ctx context.Context, n Node) error         { return s.remove(ctx, n) }
func (s nodesOnStore) All(ctx context.Context) iter.Seq2[Node, error]   { return s.all(ctx) }

func (s nodesOnStore) Get(ctx context.Context, id NodeID) (Node, error) {
	return s.get(ctx, id.RecordName())
}

func (s nodesOnStore) Watch(ctx context.Context) (<-chan Change[Node], error) {
	return s.watch(ctx, "")
}

type sessionsOnStore struct{ records[Session] }

func (s sessionsOnStore) Get(ctx context.Context, id NodeID) (Session, error) {
	return s.get(ctx, sessionKey(id))
}
func (s sessionsOnStore) Put(ctx context.Context, n Session) (Session, error) { return s.put(ctx, n) }
func (s sessionsOnStore) All(ctx context.Context) iter.Seq2[Session, error]   { return s.all(ctx) }

func (s sessionsOnStore) Delete(ctx context.Context, id NodeID) error {
	for {
		now, err := s.Get(ctx, id)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err == nil {
			err = s.remove(ctx, now)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

func (s sessionsOnStore) Watch(ctx context.Context, id NodeID) (<-chan Change[Session], error) {
	return s.watch(ctx, id.RecordName()+"/")
}

type poolsOnStore struct{ records[Pool] }

func (s poolsOnStore) Create(ctx context.Context, p Pool) (Pool, error)   { return s.create(ctx, p) }
func (s poolsOnStore) Get(ctx context.Context, name string) (Pool, error) { return s.get(ctx, name) }
func (s poolsOnStore) Update(ctx context.Context, p Pool) (Pool, error)   { return s.update(ctx, p) }
func (s poolsOnStore) Delete(ctx context.Context, p Pool) error           { return s.remove(ctx, p) }
func (s poolsOnStore) All(ctx context.Context) iter.Seq2[Pool, error]     { return s.all(ctx) }
func (s poolsOnStore) Watch(ctx context.Context) (<-chan Change[Pool], error) {
	return s.watch(ctx, "")
}

type blocksOnStore struct{ records[Block] }

func (s blocksOnStore) Create(ctx context.Context, b Block) error {
	_, err := s.create(ctx, b)
	return err
}

func (s blocksOnStore) Get(ctx context.Context, cidr netip.Prefix) (Block, error) {
	return s.get(ctx, BlockName(cidr))
}

func (s blocksOnStore) Delete(ctx context.Context, cidr netip.Prefix, claim string) error {
	key := s.prefix + BlockName(cidr)
	for {
		entry, err := s.store.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		var now Block
		if err == nil {
			now, err = s.decode(entry)
		}
		if err == nil && now.Claim != claim {
			return fmt.Errorf("block %s has another claim, of node %s: %w", cidr, now.Owner, ErrConflict)
		}
		if err == nil { // a record never changes, but another may have its place by now
			err = s.store.Remove(ctx, key, entry.Value)
		}
		if !errors.Is(err, store.ErrConflict) {
			return translate(err)
		}
	}
}

func (s blocksOnStore) All(ctx context.Context, filter BlockFilter) iter.Seq2[Block, error] {
	return func(yield func(Block, error) bool) {
		for b, err := range s.all(ctx) {
			if (err != nil || filter.Match(b)) && !yield(b, err) {
				return
			}
		}
	}
}

type infoOnStore struct{ records[ClusterInfo] }

func (s infoOnStore) Get(ctx context.Context) (ClusterInfo, Position, error) {
	position, err := s.store.Position(ctx)
	if err != nil {
		return ClusterInfo{}, position, translate(err)
	}
	info, err := s.get(ctx, infoKey)
	return info, position, err
}

func (s infoOnStore) Put(ctx context.Context, info ClusterInfo) (ClusterInfo, error) {
	return s.put(ctx, info)
}
func (s infoOnStore) Watch(ctx context.Context) (<-chan Change[ClusterInfo], error) {
	return s.watch(ctx, "")
}

type publishedOnStore[T any] struct{ records[T] }

func (s publishedOnStore[T]) Put(ctx context.Context, item T) (T, error)  { return s.put(ctx, item) }
func (s publishedOnStore[T]) Delete(ctx context.Context, item T) error    { return s.remove(ctx, item) }
func (s publishedOnStore[T]) All(ctx context.Context) iter.Seq2[T, error] { return s.all(ctx) }

func (s publishedOnStore[T]) Watch(ctx context.Context) (<-chan Change[T], error) {
	return s.watch(ctx, "")
}

// groupsOnStore are so many that nobody should have all of them in memory.
type groupsOnStore struct {
	publishedOnStore[EndpointGroup]
}

func (s groupsOnStore) Watch(ctx context.Context) (<-chan Change[EndpointGroup], error) {
	return s.watchPages(ctx, "", func(*Change[EndpointGroup]) bool { return true })
}
