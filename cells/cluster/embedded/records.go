package embedded

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"

	"porin.dev/porin/cells/cluster"
)

// formVersion is the version of the values. It grows when an agent that does not know the new form would do harm.
const formVersion = 1

// records implements the interfaces of package cluster for one kind. The version of a record is its value; Get wants a
// Key.
type records[T, Key any] struct {
	cluster.Kind[T]

	nameOf         func(Key) string
	folder, suffix string // of the keys in the file
	store          *Store
}

func (r records[T, Key]) key(name string) string { return r.folder + name + r.suffix }

// decode returns [cluster.ErrUnreadable] for a value that no agent or a later one has written.
func (r records[T, Key]) decode(name, value string) (item T, err error) {
	var form struct{ Version int }
	if err = json.Unmarshal([]byte(value), &form); err == nil && form.Version != formVersion {
		err = fmt.Errorf("another version of Porin has written it: it has version %d, this one knows %d", form.Version, formVersion)
	}
	if err == nil {
		err = json.Unmarshal([]byte(value), &item)
	}
	if err == nil && r.RecordName(item) != name {
		err = fmt.Errorf("it says that it is %.80q", r.RecordName(item))
	}
	if err == nil {
		err = r.Check(item)
	}
	if err != nil {
		return r.Named(name), fmt.Errorf("%w: %s: %w", cluster.ErrUnreadable, r.key(name), err)
	}
	*r.Version(&item) = cluster.Version(value)
	return item, nil
}

func (r records[T, Key]) Get(_ context.Context, key Key) (item T, err error) {
	value, _, err := r.store.get(r.key(r.nameOf(key)))
	if err == nil {
		item, err = r.decode(r.nameOf(key), value)
	}
	return item, err
}

func (r records[T, Key]) Create(_ context.Context, item T) (T, error) {
	return r.write(item, "", cluster.ErrExists)
}

func (r records[T, Key]) Update(_ context.Context, item T) (T, error) {
	return r.write(item, cmp.Or(*r.Version(&item), "none"), cluster.ErrConflict)
}

func (r records[T, Key]) Put(ctx context.Context, item T) (T, error) {
	if *r.Version(&item) == "" {
		return r.Create(ctx, item)
	}
	return r.Update(ctx, item)
}

// write puts the item in the place of that version, and returns otherwise if there is another.
func (r records[T, Key]) write(item T, version cluster.Version, otherwise error) (none T, err error) {
	text, err := json.Marshal(item)
	if err != nil {
		return none, err
	}
	value := fmt.Sprintf(`{"version":%d,%s`, formVersion, text[1:]) // each kind has fields
	if err := r.store.change(r.key(r.RecordName(item)), value, is(version, otherwise)); err != nil {
		return none, err
	}
	*r.Version(&item) = cluster.Version(value)
	return item, nil
}

// is accepts the value that the version is.
func is(version cluster.Version, otherwise error) func(was string) error {
	return func(was string) error {
		if was != string(version) {
			return otherwise
		}
		return nil
	}
}

func (r records[T, Key]) Delete(_ context.Context, item T) error {
	return r.store.change(r.key(r.RecordName(item)), "", is(*r.Version(&item), cluster.ErrConflict))
}

func (r records[T, Key]) All(context.Context) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		list, err := r.store.list(r.store.DB(), r.folder, r.suffix)
		if err != nil {
			var none T
			yield(none, err)
		}
		for _, e := range list {
			if !yield(r.decode(e.name, e.value)) {
				return
			}
		}
	}
}

func (r records[T, Key]) Watch(ctx context.Context) (<-chan cluster.Change[T], error) {
	return r.watch(ctx, func(entry) bool { return false })
}

// watch tells what differs from the last time, until the file is closed. It leaves out records of others, and
// unreadable ones.
func (r records[T, Key]) watch(ctx context.Context, ofOthers func(entry) bool) (<-chan cluster.Change[T], error) {
	db, told := r.store.DB(), map[string]string{}
	_, changed := r.store.changed.Get()
	list, err := r.store.list(db, r.folder, r.suffix)
	if err != nil {
		return nil, err
	}
	snapshot := cluster.Change[T]{Kind: cluster.Snapshot}
	for _, change := range r.news(told, slices.DeleteFunc(list, ofOthers)) {
		snapshot.All = append(snapshot.All, change.Item)
	}
	changes := make(chan cluster.Change[T], 1)
	changes <- snapshot
	go func() {
		defer close(changes)
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			_, changed = r.store.changed.Get()
			list, err := r.store.list(db, r.folder, r.suffix)
			if err != nil {
				return
			}
			for _, change := range r.news(told, slices.DeleteFunc(list, ofOthers)) {
				select {
				case changes <- change:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return changes, nil
}

// news returns what differs between the values that were told and the list, which it takes for told.
func (r records[T, Key]) news(told map[string]string, list []entry) (news []cluster.Change[T]) {
	gone := maps.Clone(told)
	for _, e := range list {
		delete(gone, e.name)
		if item, err := r.decode(e.name, e.value); err == nil && told[e.name] != e.value {
			news = append(news, cluster.Change[T]{Kind: cluster.Put, Name: e.name, Item: item})
		}
		told[e.name] = e.value
	}
	for name := range gone {
		delete(told, name)
		news = append(news, cluster.Change[T]{Kind: cluster.Deleted, Name: name})
	}
	return news
}
