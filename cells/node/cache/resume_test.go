package cache

import (
	"context"
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

func isFirst(context.Context) (Origin, error) { return first, nil }

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
	if got := c.ResumeNetworks(isFirst).Mark; got != networks {
		t.Errorf("%s: networks from %q, want %q", when, got, networks)
	}
	if got := c.ResumeEndpoints(isFirst).Mark; got != endpoints {
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
	c.RecordNetworks(told(snapshot(network("one")), "2"))
	page := snapshot(want[:pageSize]...)
	page.More = true
	c.RecordEndpoints(page)
	if err := c.write(); err != nil { // in the middle of the list
		t.Fatal(err)
	}
	last := snapshot(want[pageSize:]...)
	last.Continues = true
	c.RecordEndpoints(told(last, "1"))
	stop(t, c)
	resumes(t, dir, "after lists", "2", "1")

	c = open(t, dir)
	c.SetOrigin(first)
	from := c.ResumeEndpoints(isFirst)
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

// TestResumeOfOther: the store is another one, or was restored since the file was written.
func TestResumeOfOther(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	c.SetOrigin(first)
	c.RecordNetworks(told(snapshot(network("one")), "4"))
	stop(t, c)
	c = open(t, dir)
	defer stop(t, c)
	away := errors.New("the store does not answer")
	origin, err := Origin{}, away
	from := c.ResumeNetworks(func(context.Context) (Origin, error) { return origin, err })
	if got := from.Check(t.Context()); !errors.Is(got, away) {
		t.Errorf("without the store: %v", got)
	}
	err = nil
	for _, row := range []struct {
		now  Origin
		want error
	}{
		{first, nil}, {Origin{Store: "other", Cluster: first.Cluster, Recovery: first.Recovery}, cluster.ErrOtherOrigin},
		{Origin{Store: first.Store, Cluster: first.Cluster, Recovery: "r2"}, cluster.ErrOtherOrigin},
	} {
		if origin = row.now; !errors.Is(from.Check(t.Context()), row.want) {
			t.Errorf("%+v: %v, want %v", row.now, from.Check(t.Context()), row.want)
		}
	}
}

// TestRecreatedMeanwhile: the file is damaged, and replaced, while a list is written, or after a watch has got its
// records. Later changes do not make it whole.
func TestRecreatedMeanwhile(t *testing.T) {
	damage := func(c *Cache) error {
		db, err := c.open()
		if err != nil {
			return err
		}
		err = db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(endpointsBucket).Put([]byte("x"), []byte("damaged")) })
		c.Endpoints() // finds it
		return err
	}
	t.Run("in a list", func(t *testing.T) {
		dir := t.TempDir()
		c := open(t, dir)
		c.SetOrigin(first)
		page := snapshot(group("one", 0, "a"))
		page.More = true
		c.RecordEndpoints(page)
		if err := errors.Join(c.write(), damage(c)); err != nil {
			t.Fatal(err)
		}
		last := snapshot(group("two", 0, "b"))
		last.Continues = true
		c.RecordEndpoints(told(last, "1"))
		stop(t, c)
		resumes(t, dir, "after the list", "", "")
	})
	t.Run("after a start that goes on", func(t *testing.T) {
		dir := t.TempDir()
		c := open(t, dir)
		c.SetOrigin(first)
		c.RecordNetworks(told(snapshot(network("one"), network("two")), "4"))
		stop(t, c)
		c = open(t, dir)
		c.SetOrigin(first)
		if err := errors.Join(c.ResumeNetworks(isFirst).Pages(func([]cluster.NodeNetwork) {}), damage(c)); err != nil {
			t.Fatal(err)
		}
		c.RecordNetworks(told(snapshot(network("one")), "5"))
		stop(t, c)
		resumes(t, dir, "after a change", "", "")
	})
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
	from := c.ResumeNetworks(isFirst)
	c.RecordNetworks(told(snapshot(network("two")), "5"))
	if err := c.write(); err != nil {
		t.Fatal(err)
	}
	if err := from.Pages(func([]cluster.NodeNetwork) {}); !errors.Is(err, errChanged) {
		t.Errorf("error %v, want that the file has changed", err)
	}
}
