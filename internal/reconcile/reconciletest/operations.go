// Package reconciletest has what each kind of thing of package reconcile must pass.
package reconciletest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/internal/reconcile"
)

// Subject is a kind of thing, and two owners that have nothing of it yet. Their places, such as their links, are there.
type Subject[O any, K comparable, V any] struct {
	Table        *reconcile.Table[O, K, V]
	Owner, Other O
	Heir         O                         // has the place of Owner, and none of its things
	Take         func(t testing.TB, key K) // removes a thing, as another program does
	Change       func(t testing.TB, key K) // makes another thing of that name
}

// TestOperations tests the operations of a kind. Each test has a subject of its own.
func TestOperations[O any, K comparable, V any](t *testing.T, newSubject func(t *testing.T) Subject[O, K, V]) {
	run := func(name string, test func(t *testing.T, s Subject[O, K, V])) {
		t.Run(name, func(t *testing.T) { test(t, newSubject(t)) })
	}
	run("nothing is there", func(t *testing.T, s Subject[O, K, V]) {
		s.want(t, s.Owner, s.missing(s.Owner)...)
		must(t, s.Table.Delete(s.Owner))
	})
	run("applied twice", func(t *testing.T, s Subject[O, K, V]) {
		for range 2 {
			must(t, s.Table.Update(s.Owner))
			s.want(t, s.Owner)
		}
		s.want(t, s.Other, s.missing(s.Other)...)
	})
	run("removed by another program", func(t *testing.T, s Subject[O, K, V]) {
		s.make(t)
		for i, thing := range s.Table.Desired(s.Owner) {
			s.Take(t, thing.Key)
			s.restored(t, s.missing(s.Owner)[i])
		}
	})
	run("changed by another program", func(t *testing.T, s Subject[O, K, V]) {
		s.make(t)
		for i, thing := range s.Table.Desired(s.Owner) {
			s.Change(t, thing.Key)
			differs := s.missing(s.Owner)[i]
			differs.Kind = s.Table.Kinds.Differs
			s.restored(t, differs)
		}
	})
	run("deleted", func(t *testing.T, s Subject[O, K, V]) {
		s.make(t)
		for range 2 { // the second time there is nothing to do
			must(t, s.Table.Delete(s.Owner))
			s.want(t, s.Owner, s.missing(s.Owner)...)
			s.want(t, s.Other)
		}
	})
	run("orphans", func(t *testing.T, s Subject[O, K, V]) {
		s.make(t)
		owners := func(all ...O) func() []O { return func() []O { return all } }
		for _, of := range []func() []O{owners(s.Owner, s.Other), owners(s.Heir, s.Owner, s.Other), owners()} {
			if orphans, err := s.Table.Orphans(of); err != nil || len(orphans) > 0 {
				t.Errorf("orphans %+v, error %v, want none", orphans, err)
			}
		}
		without := owners(s.Heir, s.Other)
		orphans, err := s.Table.Orphans(without)
		must(t, err)
		if s.Table.Kinds.Orphan == "" {
			if len(orphans) > 0 {
				t.Errorf("orphans %+v of a kind without a name for them", orphans)
			}
			return
		}
		names := map[string]bool{}
		for _, orphan := range orphans {
			names[orphan.Subject] = true
			must(t, orphan.Remove(owners(s.Heir, s.Owner, s.Other))) // it is wanted again
		}
		want := map[string]bool{}
		for _, thing := range s.Table.Desired(s.Owner) {
			want[s.Table.NameOrphan(thing.Key)] = true
		}
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("orphans (-want +got):\n%s", diff)
		}
		s.want(t, s.Owner)
		for range 2 {
			for _, orphan := range orphans {
				must(t, orphan.Remove(without))
			}
		}
		s.want(t, s.Owner, s.missing(s.Owner)...)
		s.want(t, s.Other)
	})
}

// make makes what both owners should have.
func (s Subject[O, K, V]) make(t *testing.T) {
	t.Helper()
	must(t, s.Table.Update(s.Owner))
	must(t, s.Table.Update(s.Other))
}

// missing is what Compare finds of an owner that has nothing.
func (s Subject[O, K, V]) missing(owner O) (all []reconcile.Difference) {
	for _, thing := range s.Table.Desired(owner) {
		all = append(all, reconcile.Difference{Kind: s.Table.Kinds.Missing, Subject: s.Table.Name(thing.Key)})
	}
	return all
}

// restored wants that one difference of Owner, and none after Restore, which names it.
func (s Subject[O, K, V]) restored(t *testing.T, want reconcile.Difference) {
	t.Helper()
	s.want(t, s.Owner, want)
	s.want(t, s.Other)
	for _, replaced := range []int{1, 0} {
		names, err := reconcile.Restore(s.Owner, reconcile.Part[O](s.Table))
		must(t, err)
		if len(names) != replaced {
			t.Errorf("restored %q, want %d", names, replaced)
		}
	}
	s.want(t, s.Owner)
}

// want compares the differences of an owner, less their details.
func (s Subject[O, K, V]) want(t *testing.T, owner O, want ...reconcile.Difference) {
	t.Helper()
	got, err := s.Table.Compare(owner)
	must(t, err)
	for i := range got {
		if got[i].Detail == "" {
			t.Errorf("%+v has no detail", got[i])
		}
		got[i].Detail = ""
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("differences of %v (-want +got):\n%s", owner, diff)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
