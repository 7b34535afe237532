package clustertest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"porin.dev/porin/cells/cluster"
)

// row is a record as it is stored.
type row[T any] struct {
	item     T
	revision uint64
	deleting bool
}

// table is the records of one kind.
type table[T any] struct {
	cluster.Kind[T]

	s      *Strict
	rows   map[string]row[T]
	broken chan struct{} // closed when watches break
	news   chan struct{} // closed at the next change
}

func newTable[T any](s *Strict, kind cluster.Kind[T]) table[T] {
	return table[T]{kind, s, map[string]row[T]{}, make(chan struct{}), make(chan struct{})}
}

func (t *table[T]) breakWatches() {
	close(t.broken)
	t.broken = make(chan struct{})
}

func (t *table[T]) changedLocked() {
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
	*t.Version(&r.item), *t.Deleting(&r.item) = cluster.Version(strconv.FormatUint(r.revision, 10)), r.deleting
	return r.item
}

// bare is the item without what the store says of it, for comparisons.
func (t *table[T]) bare(item T) string {
	*t.Version(&item), *t.Deleting(&item) = "", false
	return fmt.Sprintf("%+v", item)
}

func (t *table[T]) create(ctx context.Context, item T) (none T, err error) {
	name := t.RecordName(item)
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
	t.changedLocked()
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
	name := t.RecordName(item)
	r, ok := t.rows[name]
	if !ok || r.deleting || *t.Version(&item) != cluster.Version(strconv.FormatUint(r.revision, 10)) {
		return none, cluster.ErrConflict
	}
	if t.bare(item) == t.bare(r.item) {
		return t.read(r), nil
	}
	t.s.revision++
	t.rows[name] = row[T]{item, t.s.revision, false}
	t.changedLocked()
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
		t.changedLocked()
		return nil
	}
	r.deleting, r.revision = true, t.s.revision
	t.rows[name] = r
	t.changedLocked()
	t.finishLater(name, r.revision)
	return nil
}

func (t *table[T]) finishLater(name string, revision uint64) {
	wait := time.Duration(t.s.rng.Int64N(int64(maxDeletion)))
	t.s.deleting.Go(func() { t.finish(name, revision, wait) })
}

// finishAll ends the deletions that were under way when the backup was made.
func (t *table[T]) finishAll() {
	for name, r := range t.rows {
		if r.deleting {
			t.finishLater(name, r.revision)
		}
	}
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
		t.changedLocked()
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
		changes := t.sinceLocked(told, selected)
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

// sinceLocked returns what differs from what was told, and takes it for told.
func (t *table[T]) sinceLocked(told map[string]uint64, selected func(name string) bool) (changes []cluster.Change[T]) {
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
