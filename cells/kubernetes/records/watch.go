package records

import (
	"context"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/watch"
)

// follow tells the records that the selector of fields matches, as [cluster.Change] says, until ctx ends. It leaves out
// records that cannot be read.
func (k kind[T]) follow(ctx context.Context, fields string) (<-chan cluster.Change[T], error) {
	t := teller[T]{ctx, make(chan cluster.Change[T])}
	var handler watch.Handler[record[T]] = t
	if k.byPage {
		handler = pageTeller[T]{t}
	}
	loop := watch.New(k.resource(), k.source(fields), handler, k.log)
	go func() {
		defer close(t.changes)
		_ = loop.Run(ctx) // returns nil
	}()
	return t.changes, nil
}

// teller turns what a loop reads into changes.
type teller[T any] struct {
	ctx     context.Context // of the watch
	changes chan cluster.Change[T]
}

func (t teller[T]) notify(change cluster.Change[T]) {
	select {
	case t.changes <- change:
	case <-t.ctx.Done():
	}
}

// Replace implements [watch.Handler].
func (t teller[T]) Replace(objects map[watch.Key]watch.Object[record[T]]) {
	snapshot := cluster.Change[T]{Kind: cluster.Snapshot}
	for _, o := range objects {
		if o.Value.err == nil {
			snapshot.All = append(snapshot.All, o.Value.item)
		}
	}
	t.notify(snapshot)
}

// Update implements [watch.Handler].
func (t teller[T]) Update(o watch.Object[record[T]]) {
	if o.Value.err == nil {
		t.notify(cluster.Change[T]{Kind: cluster.Put, Name: o.Key.Name, Item: o.Value.item})
	}
}

// Delete implements [watch.Handler].
func (t teller[T]) Delete(o watch.Object[record[T]]) {
	t.notify(cluster.Change[T]{Kind: cluster.Deleted, Name: o.Key.Name})
}

// pageTeller is a teller of lists in pages.
type pageTeller[T any] struct{ teller[T] }

// Page implements [watch.PageHandler].
func (t pageTeller[T]) Page(objects []watch.Object[record[T]], first, more bool) {
	page := cluster.Change[T]{Kind: cluster.Snapshot, Continues: !first, More: more}
	for _, o := range objects {
		if o.Value.err == nil {
			page.All = append(page.All, o.Value.item)
		}
	}
	t.notify(page)
}
