package cache

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/cluster"
)

// changes are what each record is to be, encoded, and nil for gone: as JSON they take a fraction of what they take as
// values.
type changes[T any] struct {
	kind  cluster.Kind[T]
	mark  cluster.Mark // where the watch is after them
	items map[string][]byte
	all   map[string]bool // if not nil: the names of all records that there are
	pages map[string]bool // the names in the pages of a list that has not ended
}

// record adds what a watch has told, unless that is what the file has.
func (c *changes[T]) record(change cluster.Change[T]) error {
	if change.Resumed {
		return nil
	}
	if c.items == nil {
		c.items = map[string][]byte{}
	}
	err := c.apply(change)
	if c.mark = change.Mark; err != nil {
		c.mark = "" // it lacks a record
	}
	return err
}

func (c *changes[T]) apply(change cluster.Change[T]) error {
	switch change.Kind {
	case cluster.Snapshot:
		if !change.Continues || c.pages == nil {
			c.pages = map[string]bool{}
		}
		for _, item := range change.All {
			name := c.kind.RecordName(item)
			c.pages[name] = true
			if err := c.set(name, item); err != nil {
				return err
			}
		}
		if !change.More {
			c.all, c.pages = c.pages, nil
			c.deleteOthers()
		}
	case cluster.Put:
		return c.set(change.Name, change.Item)
	case cluster.Deleted:
		c.remove(change.Name)
	}
	return nil
}

func (c *changes[T]) set(name string, item T) (err error) {
	value, err := encode(stored[T]{*c.kind.Version(&item), *c.kind.Deleting(&item), item})
	if err == nil {
		c.put(name, value)
	}
	return err
}

func (c *changes[T]) put(name string, value []byte) {
	c.items[name] = value
	if c.all != nil {
		c.all[name] = true
	}
}

func (c *changes[T]) remove(name string) {
	c.items[name] = nil
	delete(c.all, name)
}

// deleteOthers deletes records that are not among all.
func (c *changes[T]) deleteOthers() {
	maps.DeleteFunc(c.items, func(name string, _ []byte) bool { return !c.all[name] })
}

// take returns what is to be written, and leaves what is known of a list that has not ended.
func (c *changes[T]) take() changes[T] {
	taken := *c
	*c = changes[T]{kind: c.kind, pages: c.pages}
	return taken
}

// add adds later changes.
func (c *changes[T]) add(later changes[T]) {
	if c.items == nil {
		*c = later
		return
	}
	for name, value := range later.items {
		if value == nil {
			c.remove(name)
		} else {
			c.put(name, value)
		}
	}
	c.pages = later.pages
	if later.items != nil {
		c.mark = later.mark
	}
	if later.all != nil {
		c.all = later.all
		c.deleteOthers()
	}
}

// perTransaction bounds what one transaction holds in memory.
const perTransaction = 500

// write makes the records of a bucket what they are to be. Each is written at once, all of them are not: any may be out
// of date anyway.
func (c *changes[T]) write(db *bbolt.DB, bucket []byte) error {
	names := slices.Sorted(maps.Keys(c.items))
	if c.all != nil {
		err := db.View(func(tx *bbolt.Tx) error {
			return tx.Bucket(bucket).ForEach(func(name, _ []byte) error {
				if !c.all[string(name)] {
					names = append(names, string(name))
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	for some := range slices.Chunk(names, perTransaction) {
		if err := db.Update(func(tx *bbolt.Tx) error { return c.writeSome(tx.Bucket(bucket), some) }); err != nil {
			return err
		}
	}
	return nil
}

func (c *changes[T]) writeSome(b *bbolt.Bucket, names []string) error {
	for _, name := range names {
		value := c.items[name]
		if value == nil {
			if err := b.Delete([]byte(name)); err != nil {
				return err
			}
			continue
		}
		if bytes.Equal(b.Get([]byte(name)), value) {
			continue
		}
		if err := b.Put([]byte(name), value); err != nil {
			return err
		}
	}
	return nil
}

// nextMark returns the mark of the file when the changes are written, and until then. Without a mark the file may lack
// records, until a whole list comes.
func (c *changes[T]) nextMark(now cluster.Mark) (after, until cluster.Mark) {
	switch {
	case c.isEmpty():
		return now, now
	case now == "" && c.all == nil:
		return "", ""
	}
	return c.mark, ""
}

// isEmpty reports whether there is nothing to write.
func (c *changes[T]) isEmpty() bool { return len(c.items) == 0 && c.all == nil }

// stored is a record in the file, with what its JSON does not have.
type stored[T any] struct {
	Version  cluster.Version `json:"version"`
	Deleting bool            `json:"deleting,omitempty"`
	Record   T               `json:"record"`
}

// readSome returns up to most records of a bucket behind the name, and the name of the last one; "" when these are all.
// A record that is not as it should be is an error.
func readSome[T any](b *bbolt.Bucket, kind cluster.Kind[T], behind string, most int) (some []T, last string, err error) {
	c := b.Cursor()
	name, value := c.Seek([]byte(behind))
	if behind != "" && string(name) == behind {
		name, value = c.Next()
	}
	for ; name != nil; name, value = c.Next() {
		if len(some) == most {
			return some, last, nil
		}
		var s stored[T]
		err := decode(value, &s)
		if err == nil {
			err = kind.Check(s.Record)
		}
		if err != nil {
			return nil, "", fmt.Errorf("record %s: %w", name, err)
		}
		*kind.Version(&s.Record), *kind.Deleting(&s.Record) = s.Version, s.Deleting
		some, last = append(some, s.Record), string(name)
	}
	return some, "", nil
}

// readAll returns the records of a bucket.
func readAll[T any](b *bbolt.Bucket, kind cluster.Kind[T]) ([]T, error) {
	all, _, err := readSome(b, kind, "", math.MaxInt)
	return all, err
}
