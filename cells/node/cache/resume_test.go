package cache

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/cluster"
)

// told is a snapshot or change with a mark.
func told[T any](c cluster.Change[T], mark cluster.Mark) cluster.Change[T] {
	c.Mark = mark
	return c
}

func stop(t *testing.T, c *Cache) {
	t.Helper()
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// resumes checks what a new agent can go on from.
func resumes(t *testing.T, dir, when string, networks, endpoints cluster.Mark) {
	t.Helper()
	c := open(t, dir)
	defer stop(t, c)
	if got := c.ResumeNetworks().Mark; got != networks {
		t.Errorf("%s: networks from %q, want %q", when, got, networks)
	}
	if got := c.ResumeEndpoints().Mark; got != endpoints {
		t.Errorf("%s: endpoints from %q, want %q", when, got, endpoints)
	}
}

func TestResume(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	c.SetOrigin(first)
	var want []cluster.EndpointGroup
	for i := range 2*pageSize + 1 {
		g := group(string([]byte{'n', byte('a' + i/26/26), byte('a' + i/26%26), byte('a' + i%26)}), 0, fmt.Sprint("p", i))
		g.Version, g.Deleting = cluster.Version(fmt.Sprint(i)), i == 7
		want = append(want, g)
	}
	page := snapshot(want[:pageSize]...)
	page.More = true
	c.RecordEndpoints(page)
	if err := c.write(); err != nil { // in the middle of the list
		t.Fatal(err)
	}
	last := snapshot(want[pageSize:]...)
	last.Continues = true
	c.RecordEndpoints(told(last, "1"))
	c.RecordNetworks(told(snapshot(network("one")), "2"))
	stop(t, c)
	resumes(t, dir, "after lists", "2", "1")

	c = open(t, dir)
	c.SetOrigin(first)
	from := c.ResumeEndpoints()
	var got []cluster.EndpointGroup
	if err := from.Pages(func(page []cluster.EndpointGroup) {
		if len(page) > pageSize {
			t.Errorf("a page of %d records", len(page))
		}
		got = append(got, page...)
		resumed := snapshot(page...)
		resumed.Resumed = true
		c.RecordEndpoints(resumed)
	}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(x, y netip.Addr) bool { return x == y })); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	stop(t, c)
	resumes(t, dir, "after a start that has gone on", "2", "1")

	c = open(t, dir)
	c.SetOrigin(first)
	c.RecordEndpoints(told(cluster.Change[cluster.EndpointGroup]{Kind: cluster.Deleted, Name: want[0].RecordName()}, "3"))
	stop(t, c)
	resumes(t, dir, "after a change", "2", "3")
	c = open(t, dir)
	c.SetOrigin(first)
	c.RecordEndpoints(cluster.Change[cluster.EndpointGroup]{Kind: cluster.Put, Name: want[0].RecordName(), Item: want[0]})
	stop(t, c)
	resumes(t, dir, "after a change without a mark", "2", "")
}

// TestResumeNeedsAll: a file that may lack records is nothing to go on from, until a whole list comes.
func TestResumeNeedsAll(t *testing.T) {
	change := told(cluster.Change[cluster.NodeNetwork]{Kind: cluster.Put, Name: network("two").Node.RecordName(), Item: network("two")}, "5")
	for name, lose := range map[string]func(*Cache) error{
		"a kill while changes are written": func(c *Cache) error {
			c.RecordNetworks(change)
			db, err := c.open()
			if err != nil {
				return err
			}
			return db.Update(func(tx *bbolt.Tx) error {
				_, _, err := clearMarks(tx, c.pending)
				return err
			})
		},
		"another cluster": func(c *Cache) error {
			c.SetOrigin(Origin{Store: "other"})
			c.RecordNetworks(change)
			return c.write()
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c := open(t, dir)
			c.SetOrigin(first)
			c.RecordNetworks(told(snapshot(network("one")), "4"))
			stop(t, c)
			resumes(t, dir, "before", "4", "")
			c = open(t, dir)
			if err := lose(c); err != nil {
				t.Fatal(err)
			}
			c.pending = pending{networks: changes[cluster.NodeNetwork]{kind: cluster.NetworkKind}, endpoints: changes[cluster.EndpointGroup]{kind: cluster.EndpointGroupKind}}
			stop(t, c)
			resumes(t, dir, "after", "", "")
			c = open(t, dir)
			c.SetOrigin(first)
			c.RecordNetworks(change)
			stop(t, c)
			resumes(t, dir, "after a change", "", "")
			c = open(t, dir)
			c.SetOrigin(first)
			c.RecordNetworks(told(snapshot(network("one"), network("two")), "6"))
			stop(t, c)
			resumes(t, dir, "after a list", "6", "")
		})
	}
}

// TestResumeChanged: the file becomes another one while a watch gets its records.
func TestResumeChanged(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	defer stop(t, c)
	c.SetOrigin(first)
	c.RecordNetworks(told(snapshot(network("one")), "4"))
	if err := c.write(); err != nil {
		t.Fatal(err)
	}
	from := c.ResumeNetworks()
	c.RecordNetworks(told(snapshot(network("two")), "5"))
	if err := c.write(); err != nil {
		t.Fatal(err)
	}
	if err := from.Pages(func([]cluster.NodeNetwork) {}); !errors.Is(err, errChanged) {
		t.Errorf("error %v, want that the file has changed", err)
	}
}
