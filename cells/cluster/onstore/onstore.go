// Package onstore keeps the records of a cluster in the embedded store (one node) or in etcd.
package onstore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"strings"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/store"
)

// formVersion is the version of the records' JSON. See [store.Encode] for when it grows.
const formVersion = 1

// New returns the backend in s.
func New(s store.Store) cluster.Backend {
	return cluster.Backend{
		Nodes: nodes{records[cluster.Node]{
			s, "nodes/", func(n cluster.Node) string { return n.ID.RecordName() }, func(n *cluster.Node) *cluster.Version { return &n.Version },
			func(name string) cluster.Node { return cluster.Node{ID: cluster.ParseRecordName(name)} }, cluster.Node.Validate,
		}},
		Sessions: sessions{records[cluster.Session]{
			s, "sessions/", func(n cluster.Session) string { return sessionKey(n.Node) }, func(n *cluster.Session) *cluster.Version { return &n.Version },
			func(key string) cluster.Session {
				return cluster.Session{Node: cluster.ParseRecordName(strings.TrimSuffix(key, sessionSuffix))}
			}, cluster.Session.Validate,
		}},
		Pools: pools{records[cluster.Pool]{
			s, "pools/", func(p cluster.Pool) string { return p.Name }, func(p *cluster.Pool) *cluster.Version { return &p.Version },
			func(name string) cluster.Pool { return cluster.Pool{Name: name} }, cluster.Pool.ValidateStored,
		}},
		Blocks: blocks{records[cluster.Block]{
			s, "blocks/", func(b cluster.Block) string { return cluster.BlockName(b.CIDR) }, func(*cluster.Block) *cluster.Version { return new(cluster.Version) },
			func(name string) cluster.Block { return cluster.Block{CIDR: cluster.ParseBlockName(name)} }, cluster.Block.Validate,
		}},
		Info: info{records[cluster.ClusterInfo]{
			s, "cluster/", func(cluster.ClusterInfo) string { return infoKey }, func(r *cluster.ClusterInfo) *cluster.Version { return &r.Version },
			func(string) cluster.ClusterInfo { return cluster.ClusterInfo{} }, func(cluster.ClusterInfo) error { return nil },
		}},
		Networks: published[cluster.NodeNetwork]{records[cluster.NodeNetwork]{
			s, "networks/", func(n cluster.NodeNetwork) string { return n.Node.RecordName() }, func(n *cluster.NodeNetwork) *cluster.Version { return &n.Version },
			func(name string) cluster.NodeNetwork { return cluster.NodeNetwork{Node: cluster.ParseRecordName(name)} }, cluster.NodeNetwork.Validate,
		}},
		Endpoints: groups{published[cluster.EndpointGroup]{records[cluster.EndpointGroup]{
			s, "endpoints/", cluster.EndpointGroup.RecordName, func(g *cluster.EndpointGroup) *cluster.Version { return &g.Version }, cluster.ParseGroupName, cluster.EndpointGroup.Validate,
		}}},
	}
}

const infoKey = "info"

// sessionKey is a folder of its own, because a store watches folders.
func sessionKey(id cluster.NodeID) string { return id.RecordName() + sessionSuffix }

const sessionSuffix = "/session"

// records are the records of one kind, below a prefix. The version of a record is its value.
type records[T any] struct {
	store   store.Store
	prefix  string
	nameOf  func(T) string
	version func(*T) *cluster.Version
	named   func(name string) T // an unreadable record, as far as its name says
	check   func(T) error
}

func (r records[T]) create(ctx context.Context, item T) (T, error) {
	value, err := store.Encode(formVersion, item)
	if err == nil {
		err = r.store.Create(ctx, r.prefix+r.nameOf(item), value)
	}
	*r.version(&item) = cluster.Version(value)
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
		return none, fmt.Errorf("%w: %w", cluster.ErrUnreadable, err)
	}
	if name := r.nameOf(item); r.prefix+name != entry.Key {
		return none, fmt.Errorf("%w: %s says that it is %s", cluster.ErrUnreadable, entry.Key, name)
	}
	if err := r.check(item); err != nil {
		return none, fmt.Errorf("%w: value of %s: %w", cluster.ErrUnreadable, entry.Key, err)
	}
	*r.version(&item) = cluster.Version(entry.Value)
	return item, nil
}

func (r records[T]) update(ctx context.Context, item T) (T, error) {
	was := *r.version(&item)
	value, err := store.Encode(formVersion, item)
	if err == nil {
		err = r.store.Replace(ctx, r.prefix+r.nameOf(item), []byte(was), value)
	}
	*r.version(&item) = cluster.Version(value)
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
			if errors.Is(err, cluster.ErrUnreadable) {
				item = r.named(strings.TrimPrefix(entry.Key, r.prefix))
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

// watch is watchPages with a list in one piece.
func (r records[T]) watch(ctx context.Context, folder string) (<-chan cluster.Change[T], error) {
	var pages []T
	return r.watchPages(ctx, folder, func(c *cluster.Change[T]) bool {
		if c.Kind != cluster.Snapshot {
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
func (r records[T]) watchPages(ctx context.Context, folder string, tell func(*cluster.Change[T]) bool) (<-chan cluster.Change[T], error) {
	events, err := r.store.Watch(ctx, r.prefix+folder)
	if err != nil {
		return nil, translate(err)
	}
	changes := make(chan cluster.Change[T])
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

func (r records[T]) change(event store.Event) (change cluster.Change[T], ok bool) {
	switch event.Type {
	case store.Resync:
		change.Kind, change.Continues, change.More = cluster.Snapshot, event.Continues, event.More
		for _, entry := range event.Entries {
			if item, err := r.decode(entry); err == nil {
				change.All = append(change.All, item)
			}
		}
		return change, true
	case store.Deleted:
		return cluster.Change[T]{Kind: cluster.Deleted, Name: r.nameIn(event.Entry.Key)}, true
	default:
		item, err := r.decode(event.Entry)
		return cluster.Change[T]{Kind: cluster.Put, Name: r.nameIn(event.Entry.Key), Item: item}, err == nil
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
		store.ErrNotFound: cluster.ErrNotFound, store.ErrExists: cluster.ErrExists, store.ErrConflict: cluster.ErrConflict, store.ErrUnavailable: cluster.ErrUnavailable,
	} {
		if errors.Is(err, from) {
			return renamed{err, to}
		}
	}
	return err
}

type nodes struct{ records[cluster.Node] }

func (s nodes) Create(ctx context.Context, n cluster.Node) (cluster.Node, error) {
	return s.create(ctx, n)
}
func (s nodes) Update(ctx context.Context, n cluster.Node) (cluster.Node, error) {
	return s.update(ctx, n)
}
func (s nodes) Delete(ctx context.Context, n cluster.Node) error       { return s.remove(ctx, n) }
func (s nodes) All(ctx context.Context) iter.Seq2[cluster.Node, error] { return s.all(ctx) }

func (s nodes) Get(ctx context.Context, id cluster.NodeID) (cluster.Node, error) {
	return s.get(ctx, id.RecordName())
}

func (s nodes) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Node], error) {
	return s.watch(ctx, "")
}

type sessions struct{ records[cluster.Session] }

func (s sessions) Get(ctx context.Context, id cluster.NodeID) (cluster.Session, error) {
	return s.get(ctx, sessionKey(id))
}
func (s sessions) Put(ctx context.Context, n cluster.Session) (cluster.Session, error) {
	return s.put(ctx, n)
}
func (s sessions) All(ctx context.Context) iter.Seq2[cluster.Session, error] { return s.all(ctx) }

func (s sessions) Delete(ctx context.Context, id cluster.NodeID) error {
	for {
		now, err := s.Get(ctx, id)
		if errors.Is(err, cluster.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = s.remove(ctx, now)
		}
		if !errors.Is(err, cluster.ErrConflict) {
			return err
		}
	}
}

func (s sessions) Watch(ctx context.Context, id cluster.NodeID) (<-chan cluster.Change[cluster.Session], error) {
	return s.watch(ctx, id.RecordName()+"/")
}

type pools struct{ records[cluster.Pool] }

func (s pools) Create(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	return s.create(ctx, p)
}
func (s pools) Get(ctx context.Context, name string) (cluster.Pool, error) { return s.get(ctx, name) }
func (s pools) Update(ctx context.Context, p cluster.Pool) (cluster.Pool, error) {
	return s.update(ctx, p)
}
func (s pools) Delete(ctx context.Context, p cluster.Pool) error       { return s.remove(ctx, p) }
func (s pools) All(ctx context.Context) iter.Seq2[cluster.Pool, error] { return s.all(ctx) }
func (s pools) Watch(ctx context.Context) (<-chan cluster.Change[cluster.Pool], error) {
	return s.watch(ctx, "")
}

type blocks struct{ records[cluster.Block] }

func (s blocks) Create(ctx context.Context, b cluster.Block) error {
	_, err := s.create(ctx, b)
	return err
}

func (s blocks) Get(ctx context.Context, cidr netip.Prefix) (cluster.Block, error) {
	return s.get(ctx, cluster.BlockName(cidr))
}

func (s blocks) Delete(ctx context.Context, cidr netip.Prefix, claim string) error {
	key := s.prefix + cluster.BlockName(cidr)
	for {
		entry, err := s.store.Get(ctx, key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		var now cluster.Block
		if err == nil {
			now, err = s.decode(entry)
		}
		if err == nil && now.Claim != claim {
			return fmt.Errorf("block %s has another claim, of node %s: %w", cidr, now.Owner, cluster.ErrConflict)
		}
		if err == nil { // a record never changes, but another may have its place by now
			err = s.store.Remove(ctx, key, entry.Value)
		}
		if !errors.Is(err, store.ErrConflict) {
			return translate(err)
		}
	}
}

func (s blocks) All(ctx context.Context, filter cluster.BlockFilter) iter.Seq2[cluster.Block, error] {
	return func(yield func(cluster.Block, error) bool) {
		for b, err := range s.all(ctx) {
			if (err != nil || filter.Match(b)) && !yield(b, err) {
				return
			}
		}
	}
}

type info struct{ records[cluster.ClusterInfo] }

func (s info) Get(ctx context.Context) (cluster.ClusterInfo, cluster.Position, error) {
	position, err := s.store.Position(ctx)
	if err != nil {
		return cluster.ClusterInfo{}, cluster.Position{}, translate(err)
	}
	info, err := s.get(ctx, infoKey)
	return info, cluster.Position(position), err
}

func (s info) Recent(ctx context.Context) (cluster.ClusterInfo, cluster.Position, error) {
	return s.Get(ctx)
}

func (s info) Put(ctx context.Context, info cluster.ClusterInfo) (cluster.ClusterInfo, error) {
	return s.put(ctx, info)
}
func (s info) Watch(ctx context.Context) (<-chan cluster.Change[cluster.ClusterInfo], error) {
	return s.watch(ctx, "")
}

type published[T any] struct{ records[T] }

func (s published[T]) Put(ctx context.Context, item T) (T, error)  { return s.put(ctx, item) }
func (s published[T]) Delete(ctx context.Context, item T) error    { return s.remove(ctx, item) }
func (s published[T]) All(ctx context.Context) iter.Seq2[T, error] { return s.all(ctx) }

func (s published[T]) Watch(ctx context.Context) (<-chan cluster.Change[T], error) {
	return s.watch(ctx, "")
}

// groups are so many that no process should have all of them in memory.
type groups struct {
	published[cluster.EndpointGroup]
}

func (s groups) Watch(ctx context.Context) (<-chan cluster.Change[cluster.EndpointGroup], error) {
	return s.watchPages(ctx, "", func(*cluster.Change[cluster.EndpointGroup]) bool { return true })
}
