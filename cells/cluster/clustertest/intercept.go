package clustertest

import (
	"context"
	"errors"
	"iter"
	"net/netip"

	"porin.dev/porin/cells/cluster"
)

// Interceptor is called in place of each call of a backend except watches, and makes the call or not. what names the
// call, such as "Blocks.Create". A list is one call, which is made before its first record; with an error the list is
// that error alone.
type Interceptor func(ctx context.Context, what string, call func(context.Context) error) error

// Intercept returns the backend with an interceptor before it.
func Intercept(b cluster.Backend, i Interceptor) cluster.Backend {
	return between{intercept: i}.backend(b)
}

// between stands between a backend and its user.
type between struct {
	intercept Interceptor
	network   *Network // that watches go over; nil for none
}

func (w between) backend(b cluster.Backend) cluster.Backend {
	return cluster.Backend{
		Nodes:    records[cluster.Node, cluster.NodeID]{w, "Nodes", b.Nodes},
		Pools:    records[cluster.Pool, string]{w, "Pools", b.Pools},
		Sessions: sessions{w, b.Sessions},
		Blocks:   blocks{w, b.Blocks},
		Info:     info{w, b.Info}, ListsByOwner: b.ListsByOwner,
		Networks: published[cluster.NodeNetwork]{w, "Networks", b.Networks}, Endpoints: published[cluster.EndpointGroup]{w, "Endpoints", b.Endpoints},
		AgentRights: b.AgentRights,
	}
}

// ask makes a call with a result. A call that arrives when its caller has given up changes no result.
func ask[T any](ctx context.Context, w between, what string, call func(context.Context) (T, error)) (result T, err error) {
	results := make(chan T, 1)
	err = w.intercept(ctx, what, func(ctx context.Context) error {
		got, err := call(ctx)
		select {
		case results <- got:
		default:
		}
		return err
	})
	select {
	case result = <-results:
	default:
	}
	if err != nil && !errors.Is(err, cluster.ErrNotFound) { // with which the position of the store is told
		var none T
		return none, err
	}
	return result, err
}

func list[T any](ctx context.Context, w between, what string, all iter.Seq2[T, error]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		if err := w.intercept(ctx, what, func(context.Context) error { return nil }); err != nil {
			var none T
			yield(none, err)
			return
		}
		all(yield)
	}
}

func follow[T any](ctx context.Context, w between, begin func(context.Context) (<-chan cluster.Change[T], error)) (<-chan cluster.Change[T], error) {
	if w.network == nil {
		return begin(ctx)
	}
	return watch(ctx, w.network, begin)
}

// kind is what [cluster.Nodes] and [cluster.Pools] have in common.
type kind[T, Key any] interface {
	Create(ctx context.Context, item T) (T, error)
	Get(ctx context.Context, key Key) (T, error)
	Update(ctx context.Context, item T) (T, error)
	Delete(ctx context.Context, item T) error
	All(ctx context.Context) iter.Seq2[T, error]
	Watch(ctx context.Context) (<-chan cluster.Change[T], error)
}

type records[T, Key any] struct {
	between
	name string
	kind kind[T, Key]
}

func (s records[T, Key]) Create(ctx context.Context, item T) (T, error) {
	return ask(ctx, s.between, s.name+".Create", func(ctx context.Context) (T, error) { return s.kind.Create(ctx, item) })
}

func (s records[T, Key]) Get(ctx context.Context, key Key) (T, error) {
	return ask(ctx, s.between, s.name+".Get", func(ctx context.Context) (T, error) { return s.kind.Get(ctx, key) })
}

func (s records[T, Key]) Update(ctx context.Context, item T) (T, error) {
	return ask(ctx, s.between, s.name+".Update", func(ctx context.Context) (T, error) { return s.kind.Update(ctx, item) })
}

func (s records[T, Key]) Delete(ctx context.Context, item T) error {
	return s.intercept(ctx, s.name+".Delete", func(ctx context.Context) error { return s.kind.Delete(ctx, item) })
}

func (s records[T, Key]) All(ctx context.Context) iter.Seq2[T, error] {
	return list(ctx, s.between, s.name+".All", s.kind.All(ctx))
}

func (s records[T, Key]) Watch(ctx context.Context) (<-chan cluster.Change[T], error) {
	return follow(ctx, s.between, s.kind.Watch)
}

type sessions struct {
	between
	of cluster.Sessions
}

func (s sessions) Get(ctx context.Context, id cluster.NodeID) (cluster.Session, error) {
	return ask(ctx, s.between, "Sessions.Get", func(ctx context.Context) (cluster.Session, error) { return s.of.Get(ctx, id) })
}

func (s sessions) Put(ctx context.Context, item cluster.Session) (cluster.Session, error) {
	return ask(ctx, s.between, "Sessions.Put", func(ctx context.Context) (cluster.Session, error) { return s.of.Put(ctx, item) })
}

func (s sessions) Delete(ctx context.Context, id cluster.NodeID) error {
	return s.intercept(ctx, "Sessions.Delete", func(ctx context.Context) error { return s.of.Delete(ctx, id) })
}

func (s sessions) All(ctx context.Context) iter.Seq2[cluster.Session, error] {
	return list(ctx, s.between, "Sessions.All", s.of.All(ctx))
}

func (s sessions) Watch(ctx context.Context, id cluster.NodeID) (<-chan cluster.Change[cluster.Session], error) {
	return follow(ctx, s.between, func(ctx context.Context) (<-chan cluster.Change[cluster.Session], error) { return s.of.Watch(ctx, id) })
}

type blocks struct {
	between
	of cluster.Blocks
}

func (s blocks) Create(ctx context.Context, item cluster.Block) error {
	return s.intercept(ctx, "Blocks.Create", func(ctx context.Context) error { return s.of.Create(ctx, item) })
}

func (s blocks) Get(ctx context.Context, cidr netip.Prefix) (cluster.Block, error) {
	return ask(ctx, s.between, "Blocks.Get", func(ctx context.Context) (cluster.Block, error) { return s.of.Get(ctx, cidr) })
}

func (s blocks) Delete(ctx context.Context, cidr netip.Prefix, claim string) error {
	return s.intercept(ctx, "Blocks.Delete", func(ctx context.Context) error { return s.of.Delete(ctx, cidr, claim) })
}

func (s blocks) All(ctx context.Context, f cluster.BlockFilter) iter.Seq2[cluster.Block, error] {
	return list(ctx, s.between, "Blocks.All", s.of.All(ctx, f))
}

type info struct {
	between
	of cluster.Info
}

func (s info) Get(ctx context.Context) (cluster.ClusterInfo, cluster.Position, error) {
	return s.read(ctx, "Info.Get", s.of.Get)
}

func (s info) Recent(ctx context.Context) (cluster.ClusterInfo, cluster.Position, error) {
	return s.read(ctx, "Info.Recent", s.of.Recent)
}

func (s info) read(ctx context.Context, what string, get func(context.Context) (cluster.ClusterInfo, cluster.Position, error)) (cluster.ClusterInfo, cluster.Position, error) {
	type answer struct {
		record   cluster.ClusterInfo
		position cluster.Position
	}
	got, err := ask(ctx, s.between, what, func(ctx context.Context) (answer, error) {
		r, p, err := get(ctx)
		return answer{r, p}, err
	})
	return got.record, got.position, err
}

func (s info) Put(ctx context.Context, r cluster.ClusterInfo) (cluster.ClusterInfo, error) {
	return ask(ctx, s.between, "Info.Put", func(ctx context.Context) (cluster.ClusterInfo, error) { return s.of.Put(ctx, r) })
}

func (s info) Watch(ctx context.Context) (<-chan cluster.Change[cluster.ClusterInfo], error) {
	return follow(ctx, s.between, s.of.Watch)
}

type published[T any] struct {
	between
	name string
	of   cluster.Published[T]
}

func (s published[T]) Put(ctx context.Context, item T) (T, error) {
	return ask(ctx, s.between, s.name+".Put", func(ctx context.Context) (T, error) { return s.of.Put(ctx, item) })
}

func (s published[T]) Delete(ctx context.Context, item T) error {
	return s.intercept(ctx, s.name+".Delete", func(ctx context.Context) error { return s.of.Delete(ctx, item) })
}

func (s published[T]) All(ctx context.Context) iter.Seq2[T, error] {
	return list(ctx, s.between, s.name+".All", s.of.All(ctx))
}

func (s published[T]) Watch(ctx context.Context, from cluster.Resume[T]) (<-chan cluster.Change[T], error) {
	return follow(ctx, s.between, func(ctx context.Context) (<-chan cluster.Change[T], error) { return s.of.Watch(ctx, from) })
}
