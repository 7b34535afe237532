package cache

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/cluster"
)

var first = Origin{Store: "etcd", Cluster: "c", Recovery: "r1"}

func id(name string) cluster.NodeID {
	return cluster.NodeID{Name: name, Key: (name + "aaaaaaaaaa")[:10]}
}

func network(name string) cluster.NodeNetwork {
	return cluster.NodeNetwork{Node: id(name), Agent: "a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Routing: cluster.RoutingNative}
}

func group(name string, slot int, pods ...string) cluster.EndpointGroup {
	g := cluster.EndpointGroup{Node: id(name), Slot: slot, LabelSets: []cluster.LabelSet{{Namespace: "shop"}}}
	for i, pod := range pods {
		addr := netip.AddrFrom4([4]byte{10, 0, byte(slot), byte(i + 1)})
		g.Endpoints = append(g.Endpoints, cluster.PublishedEndpoint{Addresses: []netip.Addr{addr}, Pod: pod})
	}
	return g
}

func snapshot[T any](all ...T) cluster.Change[T] {
	return cluster.Change[T]{Kind: cluster.Snapshot, All: all}
}

func open(t *testing.T, dir string) *Cache {
	t.Helper()
	c := New(dir, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { _ = c.Stop(t.Context()) })
	return c
}

// write is a life of an agent that is told of the records.
func write(t *testing.T, dir string, of Origin, networks []cluster.NodeNetwork, groups []cluster.EndpointGroup) {
	t.Helper()
	c := open(t, dir)
	c.RecordNetworks(snapshot(networks...))
	c.RecordEndpoints(snapshot(groups...))
	c.RecordNamespaces(map[string]map[string]string{"shop": {"of": of.Recovery}})
	c.SetOrigin(of)
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// wants checks what a new agent finds, as "one, two: a b".
func wants(t *testing.T, dir, when, want string) {
	t.Helper()
	c := open(t, dir)
	networks, _, _ := c.Networks()
	groups, _, _ := c.Endpoints()
	var names, pods []string
	for _, n := range networks {
		names = append(names, n.Node.Name)
	}
	for _, g := range groups {
		for _, ep := range g.Endpoints {
			pods = append(pods, ep.Pod)
		}
	}
	slices.Sort(pods)
	if got := strings.Join(names, ", ") + ": " + strings.Join(pods, " "); got != want {
		t.Errorf("%s: it has %q, want %q", when, got, want)
	}
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestCache(t *testing.T) {
	dir := t.TempDir()
	wants(t, dir, "without a file", ": ")
	write(t, dir, first, []cluster.NodeNetwork{network("one"), network("two")}, []cluster.EndpointGroup{group("one", 0, "a", "b"), group("two", 0, "c")})
	wants(t, dir, "after the first agent", "one, two: a b c")
	write(t, dir, first, []cluster.NodeNetwork{network("two")}, []cluster.EndpointGroup{group("two", 0, "c"), group("two", 1, "d")})
	wants(t, dir, "after a list without a node", "two: c d")

	c := open(t, dir)
	c.RecordEndpoints(cluster.Change[cluster.EndpointGroup]{Kind: cluster.Deleted, Name: group("two", 1).RecordName()})
	changed := group("two", 0, "e")
	c.RecordEndpoints(cluster.Change[cluster.EndpointGroup]{Kind: cluster.Put, Name: changed.RecordName(), Item: changed})
	c.SetOrigin(first)
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(t, dir, "after changes", "two: e")

	other := first
	other.Recovery = "r2"
	write(t, dir, other, nil, []cluster.EndpointGroup{group("three", 0, "f")})
	wants(t, dir, "after another recovery", ": f")
	if _, namespaces, _ := open(t, dir).Endpoints(); namespaces["shop"]["of"] != "r2" {
		t.Errorf("labels of namespaces %v after another recovery", namespaces)
	}
}

// TestCacheOriginChanges: received records stay when the store's records get another origin while the agent runs, as
// when the first node of a cluster without pools is deleted, or in a recovery: they are not sent again.
func TestCacheOriginChanges(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, Origin{Store: "former"}, []cluster.NodeNetwork{network("former")}, nil)
	c := open(t, dir)
	c.RecordNetworks(snapshot(network("one"), network("two"), network("three")))
	c.RecordEndpoints(snapshot(group("one", 0, "a"), group("two", 0, "b")))
	c.SetOrigin(first)
	if err := c.write(); err != nil {
		t.Fatal(err)
	}
	next := first
	next.Recovery = "r2"
	c.SetOrigin(next)
	c.RecordNetworks(cluster.Change[cluster.NodeNetwork]{Kind: cluster.Deleted, Name: network("two").Node.RecordName()})
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(t, dir, "after another origin", "one, three: a b")
	if _, of, _ := open(t, dir).Networks(); of != next {
		t.Errorf("they are of %+v, want %+v", of, next)
	}
}

// TestCachePages is told of a list page by page, and writes in between. A new file is of no use before the list is
// complete.
func TestCachePages(t *testing.T) {
	page := func(continues, more bool, all ...cluster.EndpointGroup) cluster.Change[cluster.EndpointGroup] {
		return cluster.Change[cluster.EndpointGroup]{Kind: cluster.Snapshot, All: all, Continues: continues, More: more}
	}
	dir := t.TempDir()
	life := func(changes ...cluster.Change[cluster.EndpointGroup]) {
		t.Helper()
		c := open(t, dir)
		c.SetOrigin(first)
		for _, change := range changes {
			c.RecordEndpoints(change)
			if err := c.write(); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	life(page(false, true, group("one", 0, "a")))
	wants(t, dir, "after one page", ": ")
	life(page(false, true, group("one", 0, "a")), page(true, false, group("one", 1, "b")))
	wants(t, dir, "after two pages", ": a b")
	life(page(false, true, group("one", 0, "c")))
	wants(t, dir, "after one page of another list", ": b c")
	life(page(false, true, group("one", 0, "a")), page(false, true, group("one", 1, "d")), page(true, false, group("one", 2, "e")), put(group("one", 3, "f")))
	wants(t, dir, "after a list that began anew", ": d e f")
}

func put(g cluster.EndpointGroup) cluster.Change[cluster.EndpointGroup] {
	return cluster.Change[cluster.EndpointGroup]{Kind: cluster.Put, Name: g.RecordName(), Item: g}
}

// TestCacheWithoutOrigin: records of an unknown origin are not written.
func TestCacheWithoutOrigin(t *testing.T) {
	dir := t.TempDir()
	c := open(t, dir)
	c.RecordNetworks(snapshot(network("one")))
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	wants(t, dir, "after an agent that never knew its store", ": ")
}

// TestCacheInterval counts the writes of an agent that is told of something all the time.
func TestCacheInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(t.TempDir(), slog.New(slog.DiscardHandler))
		c.task.Start(nil)
		c.SetOrigin(first)
		for range 200 {
			c.RecordNetworks(cluster.Change[cluster.NodeNetwork]{Kind: cluster.Put, Name: network("one").Node.RecordName(), Item: network("one")})
			time.Sleep(100 * time.Millisecond)
		}
		if runs := c.task.Status().Runs; runs < 2 || runs > 8 {
			t.Errorf("%d rounds in 20 s, want one in %s", runs, interval)
		}
		if all, _, told := c.Networks(); len(all) != 1 || told.IsZero() {
			t.Errorf("it has %v of %s while it runs, want one", all, told)
		}
		if err := c.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCacheDamaged begins again with an unusable file, and goes on.
func TestCacheDamaged(t *testing.T) {
	flip := func(path string) error {
		db, err := bbolt.Open(path, 0o600, nil)
		if err != nil {
			return err
		}
		err = db.Update(func(tx *bbolt.Tx) error {
			name, value := tx.Bucket(endpointsBucket).Cursor().First()
			value = slices.Clone(value)
			value[len(value)/2] ^= 1
			return tx.Bucket(endpointsBucket).Put(name, value)
		})
		return errors.Join(err, db.Close())
	}
	for name, damage := range map[string]func(path string) error{
		"empty":     func(path string) error { return os.Truncate(path, 0) },
		"cut short": func(path string) error { return os.Truncate(path, 8192) },
		"no bbolt":  func(path string) error { return os.WriteFile(path, []byte(strings.Repeat("x", 16384)), 0o600) },
		"too large": func(path string) error { return os.Truncate(path, maxBytes+1) },
		"a bit":     flip,
		"another form": func(path string) error {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				return err
			}
			return errors.Join(db.Update(func(tx *bbolt.Tx) error {
				return writeHeader(tx, header{Form: form + 1, Origin: first, UpdatedAt: time.Now()})
			}), db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			one, groups := []cluster.NodeNetwork{network("one")}, []cluster.EndpointGroup{group("one", 0, "a")}
			write(t, dir, first, one, groups)
			if err := damage(filepath.Join(dir, "peers.db")); err != nil {
				t.Fatal(err)
			}
			c := open(t, dir)
			if all, _, told := c.Endpoints(); len(all) != 0 || !told.IsZero() {
				t.Errorf("it has %v", all)
			}
			if err := c.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			write(t, dir, first, one, groups)
			wants(t, dir, "the next time", "one: a")
		})
	}
}
