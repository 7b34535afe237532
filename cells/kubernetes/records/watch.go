package records

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/watch"
)

// follow tells the records that the selector of fields matches, as [cluster.Change] says, until ctx ends. It leaves out
// records that cannot be read.
func (k kind[T]) follow(ctx context.Context, fields string, from cluster.Resume[T]) (<-chan cluster.Change[T], error) {
	t := &teller[T]{ctx: ctx, changes: make(chan cluster.Change[T])}
	var handler watch.Handler[record[T]] = t
	if k.byPage {
		handler = pageTeller[T]{t}
	}
	t.loop = watch.New(k.resource(), k.source(fields), handler, k.log)
	if resume, ok := k.resume(from); ok {
		t.loop.ResumeFrom(resume)
	}
	go func() {
		defer close(t.changes)
		_ = t.loop.Run(ctx) // returns nil
	}()
	return t.changes, nil
}

// mark is a [cluster.Mark], as JSON.
type mark struct {
	// Shape is of the records as they were read: another version of the agent may read more of their fields.
	Shape uint32     `json:"shape"`
	Watch watch.Mark `json:"watch"`
}

// resume returns false if there is nothing to go on from.
func (k kind[T]) resume(from cluster.Resume[T]) (r watch.Resume[record[T]], ok bool) {
	var m mark
	if from.Mark == "" || json.Unmarshal([]byte(from.Mark), &m) != nil || m.Watch.Version == "" || m.Shape != shapeOf[T]() {
		return r, false
	}
	return watch.Resume[record[T]]{
		Mark: m.Watch,
		Check: func(ctx context.Context) error {
			err := from.Check(ctx)
			if errors.Is(err, cluster.ErrOtherOrigin) {
				err = fmt.Errorf("%w: %w", watch.ErrOther, err)
			}
			return err
		},
		Pages: func(page func([]watch.Object[record[T]])) error {
			return from.Pages(func(items []T) {
				objects := make([]watch.Object[record[T]], 0, len(items))
				for _, item := range items {
					objects = append(objects, watch.Object[record[T]]{Key: watch.Key{Name: k.RecordName(item)}, Version: string(*k.Version(&item)), Value: record[T]{item: item}})
				}
				page(objects)
			})
		},
	}, true
}

// teller turns what a loop reads into changes.
type teller[T any] struct {
	ctx     context.Context // of the watch
	changes chan cluster.Change[T]
	loop    *watch.Loop[record[T]] // nil: changes have no marks
	// partial says that a record could not be read since the last list: changes have no marks.
	partial bool
}

func (t *teller[T]) notify(change cluster.Change[T]) {
	if !change.More {
		change.Mark = t.mark()
	}
	select {
	case t.changes <- change:
	case <-t.ctx.Done():
	}
}

// mark is "" where watches have none.
func (t *teller[T]) mark() cluster.Mark {
	if t.loop == nil || t.partial {
		return ""
	}
	text, err := json.Marshal(mark{shapeOf[T](), t.loop.Mark()})
	if err != nil {
		return ""
	}
	return cluster.Mark(text)
}

// reads reports whether the record could be read.
func (t *teller[T]) reads(o watch.Object[record[T]]) bool {
	t.partial = t.partial || o.Value.err != nil
	return o.Value.err == nil
}

// Replace implements [watch.Handler].
func (t *teller[T]) Replace(objects map[watch.Key]watch.Object[record[T]]) {
	snapshot := cluster.Change[T]{Kind: cluster.Snapshot, Resumed: t.loop.Resumes()}
	t.partial = false
	for _, o := range objects {
		if t.reads(o) {
			snapshot.All = append(snapshot.All, o.Value.item)
		}
	}
	t.notify(snapshot)
}

// Update implements [watch.Handler].
func (t *teller[T]) Update(o watch.Object[record[T]]) {
	if t.reads(o) {
		t.notify(cluster.Change[T]{Kind: cluster.Put, Name: o.Key.Name, Item: o.Value.item})
	}
}

// Delete implements [watch.Handler].
func (t *teller[T]) Delete(o watch.Object[record[T]]) {
	t.notify(cluster.Change[T]{Kind: cluster.Deleted, Name: o.Key.Name})
}

// pageTeller is a teller of lists in pages.
type pageTeller[T any] struct{ *teller[T] }

// Page implements [watch.PageHandler].
func (t pageTeller[T]) Page(objects []watch.Object[record[T]], first, more bool) {
	page := cluster.Change[T]{Kind: cluster.Snapshot, Continues: !first, More: more, Resumed: t.loop.Resumes()}
	t.partial = t.partial && !first
	for _, o := range objects {
		if t.reads(o) {
			page.All = append(page.All, o.Value.item)
		}
	}
	t.notify(page)
}
