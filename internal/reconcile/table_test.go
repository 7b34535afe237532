package reconcile_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/internal/reconcile"
	"porin.dev/porin/internal/reconcile/reconciletest"
)

// owner has a place, and things there of these names.
type owner struct {
	place int
	names string
}

// thing is named by its place.
type thing struct {
	place int
	name  string
}

// memory has things in memory; their value is "made" unless another program has changed them.
type memory struct {
	things map[thing]string
	getErr error
}

func newTable() (*memory, *reconcile.Table[owner, thing, string]) {
	m := &memory{things: map[thing]string{}}
	return m, &reconcile.Table[owner, thing, string]{
		Operations: m, OrphanDetail: "without an owner",
		Kinds: reconcile.Kinds{Missing: "thing-missing", Differs: "thing-differs", Orphan: "thing-orphan"},
	}
}

func (*memory) Desired(o owner) (list []reconcile.Thing[thing, string]) {
	for _, name := range strings.Fields(o.names) {
		list = append(list, reconcile.Thing[thing, string]{Key: thing{o.place, name}, Want: "made"})
	}
	return list
}

func (*memory) Has(o owner, key thing) bool { return key.place == o.place }

func (m *memory) List() ([]thing, error) { return slices.Collect(maps.Keys(m.things)), nil }

func (m *memory) Get(key thing) (string, bool, error) {
	have, found := m.things[key]
	return have, found, m.getErr
}

func (m *memory) Apply(key thing, want string) error {
	m.things[key] = want
	return nil
}

func (m *memory) Remove(key thing) error {
	delete(m.things, key)
	return nil
}

func (*memory) Compare(want, have string) string {
	if want == have {
		return ""
	}
	return have + " instead of " + want
}

func (*memory) Name(key thing) string { return "thing " + key.name }
func (*memory) NameOrphan(key thing) string {
	return fmt.Sprintf("thing %s at %d", key.name, key.place)
}

func TestTableOperations(t *testing.T) {
	reconciletest.TestOperations(t, func(*testing.T) reconciletest.Subject[owner, thing, string] {
		m, table := newTable()
		return reconciletest.Subject[owner, thing, string]{
			Table: table, Owner: owner{1, "a b"}, Other: owner{2, "a"}, Heir: owner{1, ""},
			Take:   func(_ testing.TB, key thing) { delete(m.things, key) },
			Change: func(_ testing.TB, key thing) { m.things[key] = "another" },
		}
	})
}

// A thing in no owner's place goes with the place.
func TestTableOrphanWithoutPlace(t *testing.T) {
	m, table := newTable()
	m.things[thing{1, "a"}], m.things[thing{2, "a"}] = "made", "made"
	owners := func() []owner { return []owner{{1, ""}} }
	orphans, err := table.Orphans(owners)
	if err != nil || len(orphans) != 1 || orphans[0].String() != "thing a at 1: without an owner" {
		t.Fatalf("orphans %+v, error %v", orphans, err)
	}
	if err := orphans[0].Remove(func() []owner { return nil }); err != nil || len(m.things) != 2 {
		t.Errorf("after the owner has gone: %v, error %v", m.things, err)
	}
}

func TestRestore(t *testing.T) {
	broken, interrupted := errors.New("broken"), fmt.Errorf("list: %w", netlink.ErrDumpInterrupted)
	for name, row := range map[string]struct {
		have     string
		err      error // of the comparison
		replaced []string
		made     bool
	}{
		"as it should be":        {have: "made", made: true},
		"missing":                {replaced: []string{"thing a: missing"}, made: true},
		"changed":                {have: "another", replaced: []string{"thing a: another instead of made"}, made: true},
		"the comparison fails":   {have: "another", err: broken},
		"a list was interrupted": {have: "another", err: interrupted, made: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, table := newTable()
			if row.have != "" {
				m.things[thing{1, "a"}] = row.have
			}
			m.getErr = row.err
			replaced, err := reconcile.Restore(owner{1, "a"}, reconcile.Part[owner](table))
			if row.err == broken && !errors.Is(err, broken) || row.err != broken && err != nil || !slices.Equal(replaced, row.replaced) {
				t.Errorf("replaced %q, error %v", replaced, err)
			}
			if made := m.things[thing{1, "a"}] == "made"; made != row.made {
				t.Errorf("there is %v", m.things)
			}
		})
	}
}

// failing is a part whose orphans of odd names cannot be removed.
type failing struct {
	reconcile.Part[owner]
	orphans []reconcile.Orphan[owner]
}

func (f failing) Orphans(func() []owner) ([]reconcile.Orphan[owner], error) { return f.orphans, nil }

func TestPrune(t *testing.T) {
	broken := errors.New("broken")
	orphan := func(subject string, err error) reconcile.Orphan[owner] {
		return reconcile.Orphan[owner]{
			Difference: reconcile.Difference{Subject: subject}, Remove: func(func() []owner) error { return err },
		}
	}
	part := failing{orphans: []reconcile.Orphan[owner]{orphan("one", nil), orphan("two", broken), orphan("three", nil)}}
	removed, err := reconcile.Prune(func() []owner { return nil }, reconcile.Part[owner](part))
	if !slices.Equal(removed, []string{"one", "three"}) || !errors.Is(err, broken) {
		t.Errorf("removed %q, error %v", removed, err)
	}
}

func TestExamine(t *testing.T) {
	one := owner{1, "a"}
	for name, row := range map[string]struct {
		before, after []owner
		err           error
		found         int
	}{
		"the same":              {before: []owner{one}, after: []owner{one}, found: 1},
		"it goes":               {before: []owner{one}},
		"it comes":              {after: []owner{one}},
		"it changes":            {before: []owner{one}, after: []owner{{1, "a b"}}},
		"another comes":         {before: []owner{one}, after: []owner{{2, "a"}, one}, found: 1},
		"a list is interrupted": {before: []owner{one}, after: []owner{one}, err: netlink.ErrDumpInterrupted},
	} {
		t.Run(name, func(t *testing.T) {
			m, table := newTable()
			m.getErr = row.err
			lists := [][]owner{row.before, row.after}
			list := func() []owner {
				now := lists[0]
				lists = lists[1:]
				return now
			}
			found, err := reconcile.Examine(list, reconcile.Part[owner](table))
			if err != nil || len(found) != row.found {
				t.Errorf("found %+v, error %v, want %d", found, err, row.found)
			}
		})
	}
}
