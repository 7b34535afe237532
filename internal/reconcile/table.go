package reconcile

import (
	"errors"
	"slices"
)

// Operations are what a cell knows of one kind of thing. K names a thing, V is all of it that matters.
type Operations[O any, K comparable, V any] interface {
	// Desired returns what the owner should have, in the order of Apply.
	Desired(owner O) []Thing[K, V]
	// Has reports whether the thing is at the owner's place, such as its link. A thing at no owner's place is no orphan:
	// it is another cell's, or goes with its place.
	Has(owner O, key K) bool
	// List returns what bears the cell's mark: in part, when the list changed while it was read. Nil for a kind without
	// orphans.
	List() ([]K, error)
	// Get reads one thing by its name, also when another program has made it.
	Get(key K) (have V, found bool, err error)
	// Apply makes the thing, whatever is there.
	Apply(key K, want V) error
	// Remove removes a thing that bears the cell's mark. That it is gone is no error.
	Remove(key K) error
	// Compare says what differs; "" is nothing.
	Compare(want, have V) string
	// Name names the thing of an owner: "route to 10.0.0.2". NameOrphan names it without one: "route to 10.0.0.2/32 by
	// link 7".
	Name(key K) string
	NameOrphan(key K) string
}

// Thing is one thing that an owner should have.
type Thing[K, V any] struct {
	Key  K
	Want V
}

// Kinds are the kinds of findings of a [Table].
type Kinds struct{ Missing, Differs, Orphan string }

// Table is the [Part] of things that [Operations] read and write.
type Table[O any, K comparable, V any] struct {
	Operations[O, K, V]
	Kinds        Kinds
	OrphanDetail string // says why something is an orphan
}

// Update implements [Part].
func (t *Table[O, K, V]) Update(owner O) error {
	for _, thing := range t.Desired(owner) {
		if err := t.Apply(thing.Key, thing.Want); err != nil {
			return err
		}
	}
	return nil
}

// Delete removes what Update made, as far as it is there. It goes on after a failure.
func (t *Table[O, K, V]) Delete(owner O) (err error) {
	for _, thing := range slices.Backward(t.Desired(owner)) {
		err = errors.Join(err, t.Remove(thing.Key))
	}
	return err
}

// Compare implements [Part].
func (t *Table[O, K, V]) Compare(owner O) (differences []Difference, err error) {
	for _, thing := range t.Desired(owner) {
		have, found, err := t.Get(thing.Key)
		if err != nil {
			return nil, err
		}
		d := Difference{t.Kinds.Missing, t.Name(thing.Key), Missing}
		if found {
			d.Kind, d.Detail = t.Kinds.Differs, t.Operations.Compare(thing.Want, have)
		}
		if d.Detail != "" {
			differences = append(differences, d)
		}
	}
	return differences, nil
}

// Orphans implements [Part].
func (t *Table[O, K, V]) Orphans(owners func() []O) (orphans []Orphan[O], err error) {
	keys, err := t.List()
	all := owners()
	wanted := map[K]bool{}
	for _, owner := range all {
		for _, thing := range t.Desired(owner) {
			wanted[thing.Key] = true
		}
	}
	for _, key := range keys {
		if wanted[key] || !t.isOrphan(all, key) {
			continue
		}
		orphans = append(orphans, Orphan[O]{
			Difference{t.Kinds.Orphan, t.NameOrphan(key), t.OrphanDetail},
			func(owners func() []O) error {
				if !t.isOrphan(owners(), key) {
					return nil
				}
				return t.Remove(key)
			},
		})
	}
	return orphans, err
}

// isOrphan reports whether the thing is in the place of an owner, and no owner of that place should have it.
func (t *Table[O, K, V]) isOrphan(owners []O, key K) (placed bool) {
	for _, owner := range owners {
		if !t.Has(owner, key) {
			continue
		}
		if slices.ContainsFunc(t.Desired(owner), func(thing Thing[K, V]) bool { return thing.Key == key }) {
			return false
		}
		placed = true
	}
	return placed
}
