// Package clustertest has the test that every backend of package cluster passes, a backend for tests that is as strict
// as the weakest real one, and a network that loses answers.
package clustertest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/cells/cluster"
)

// Run holds a backend to what package cluster promises. fresh returns an empty one for each test.
func Run(t *testing.T, fresh func(t *testing.T) cluster.Backend) {
	for name, test := range map[string]func(*testing.T, cluster.Backend){
		"nodes": testNodes, "sessions": testSessions, "pools": testPools, "blocks": testBlocks, "info": testInfo, "networks": testNetworks, "endpoint groups": testGroups,
		"claims race": testClaimRace, "watch": testWatch, "long names": testLongNames, "many blocks": testManyBlocks,
	} {
		t.Run(name, func(t *testing.T) { test(t, fresh(t)) })
	}
}

// wait bounds what has to happen soon.
const wait = 20 * time.Second

// NodeNamed returns a node for tests.
func NodeNamed(name string) cluster.Node {
	return cluster.Node{ID: cluster.NodeID{Name: name, Key: cluster.NewKey()}, State: cluster.NodeActive}
}

func want(t *testing.T, what string, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) || (wanted == nil && err != nil) {
		t.Errorf("%s: error %v, want %v", what, err, wanted)
	}
}

func same[T any](t *testing.T, what string, wanted, got T) {
	t.Helper()
	if diff := cmp.Diff(wanted, got, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.FilterPath(func(p cmp.Path) bool {
		name := p.Last().String()
		return name == ".Version" || name == ".Deleting"
	}, cmp.Ignore())); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// gone waits until a deletion is complete.
func gone(t *testing.T, get func() error) {
	t.Helper()
	for end := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
		err := get()
		if errors.Is(err, cluster.ErrNotFound) {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("the record is there yet: error %v", err)
		}
	}
}

func collect[T any](t *testing.T, list iter.Seq2[T, error]) (items []T) {
	t.Helper()
	for item, err := range list {
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, item)
	}
	return items
}

func testNodes(t *testing.T, b cluster.Backend) {
	ctx, n := t.Context(), NodeNamed("node-1")
	_, err := b.Nodes.Get(ctx, n.ID)
	want(t, "get of nothing", err, cluster.ErrNotFound)
	_, err = b.Nodes.Update(ctx, n)
	want(t, "update of nothing", err, cluster.ErrConflict)
	created, err := b.Nodes.Create(ctx, n)
	want(t, "create", err, nil)
	same(t, "created", n, created)
	_, err = b.Nodes.Create(ctx, n)
	want(t, "create again", err, cluster.ErrExists)
	releasing := created
	releasing.State = cluster.NodeReleasing
	changed, err := b.Nodes.Update(ctx, releasing)
	want(t, "update", err, nil)
	_, err = b.Nodes.Update(ctx, created)
	want(t, "update of an old version", err, cluster.ErrConflict)
	again, err := b.Nodes.Update(ctx, changed)
	want(t, "update with equal content", err, nil)
	got, err := b.Nodes.Get(ctx, n.ID)
	want(t, "get", err, nil)
	same(t, "node", releasing, got)
	if got.Version != again.Version {
		t.Errorf("version %q after the update, %q when read", again.Version, got.Version)
	}
	want(t, "delete of an old version", b.Nodes.Delete(ctx, created), cluster.ErrConflict)
	want(t, "delete", b.Nodes.Delete(ctx, got), nil)
	gone(t, func() error { _, err := b.Nodes.Get(ctx, n.ID); return err })
	want(t, "delete again", b.Nodes.Delete(ctx, got), nil)
	if all := collect(t, b.Nodes.All(ctx)); len(all) != 0 {
		t.Errorf("nodes %+v are left", all)
	}
}

func testSessions(t *testing.T, b cluster.Backend) {
	ctx, id := t.Context(), NodeNamed("node-1").ID
	one := cluster.Session{Node: id, ID: "one"}
	first, err := b.Sessions.Put(ctx, one)
	want(t, "put", err, nil)
	_, err = b.Sessions.Put(ctx, one)
	want(t, "put again without a version", err, cluster.ErrExists)
	two := first
	two.ID = "two"
	_, err = b.Sessions.Put(ctx, two)
	want(t, "put of the next", err, nil)
	late := first
	late.ID = "late"
	_, err = b.Sessions.Put(ctx, late)
	want(t, "put of an old version", err, cluster.ErrConflict)
	got, err := b.Sessions.Get(ctx, id)
	want(t, "get", err, nil)
	same(t, "session", two, got)
	same(t, "sessions", []cluster.Session{two}, collect(t, b.Sessions.All(ctx)))
	want(t, "delete", b.Sessions.Delete(ctx, id), nil)
	gone(t, func() error { _, err := b.Sessions.Get(ctx, id); return err })
	want(t, "delete again", b.Sessions.Delete(ctx, id), nil)
}

func testPools(t *testing.T, b cluster.Backend) {
	ctx := t.Context()
	p := cluster.Pool{
		Name: "default", UID: "u1", State: cluster.PoolPending, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16")},
		NodeSelector: map[string]string{"a": "b"}, AllowedNamespaces: []string{"x"}, Exclude: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/24")},
	}.WithDefaults()
	created, err := b.Pools.Create(ctx, p)
	want(t, "create", err, nil)
	accepted := created
	accepted.State = cluster.PoolAccepted
	accepted, err = b.Pools.Update(ctx, accepted)
	want(t, "update", err, nil)
	_, err = b.Pools.Update(ctx, created)
	want(t, "update of an old version", err, cluster.ErrConflict)
	got, err := b.Pools.Get(ctx, "default")
	want(t, "get", err, nil)
	same(t, "pool", accepted, got)
	same(t, "pools", []cluster.Pool{accepted}, collect(t, b.Pools.All(ctx)))
	want(t, "delete of an old version", b.Pools.Delete(ctx, created), cluster.ErrConflict)
	want(t, "delete", b.Pools.Delete(ctx, got), nil)
	gone(t, func() error { _, err := b.Pools.Get(ctx, "default"); return err })
}

func block(cidr string, owner cluster.NodeID, claim string) cluster.Block {
	return cluster.Block{CIDR: netip.MustParsePrefix(cidr), Pool: "default", PoolUID: "u1", Owner: owner, Claim: claim}
}

func testBlocks(t *testing.T, b cluster.Backend) {
	ctx, one, two := t.Context(), NodeNamed("node-1").ID, NodeNamed("node-2").ID
	first, other, v6 := block("10.0.0.0/26", one, "c1"), block("10.0.0.64/26", two, "c2"), block("fd00::/64", one, "c3")
	for _, bl := range []cluster.Block{first, other, v6} {
		want(t, "create", b.Blocks.Create(ctx, bl), nil)
	}
	want(t, "create again", b.Blocks.Create(ctx, block("10.0.0.0/26", two, "c4")), cluster.ErrExists)
	got, err := b.Blocks.Get(ctx, first.CIDR)
	want(t, "get", err, nil)
	same(t, "block", first, got)
	byName := func(a, b cluster.Block) int { return a.CIDR.Addr().Compare(b.CIDR.Addr()) }
	all := collect(t, b.Blocks.All(ctx, cluster.BlockFilter{}))
	slices.SortFunc(all, byName)
	same(t, "blocks", []cluster.Block{first, other, v6}, all)
	own := collect(t, b.Blocks.All(ctx, cluster.BlockFilter{Owner: one, Pool: "default"}))
	slices.SortFunc(own, byName)
	same(t, "blocks of a node", []cluster.Block{first, v6}, own)
	if none := collect(t, b.Blocks.All(ctx, cluster.BlockFilter{Pool: "none"})); len(none) != 0 {
		t.Errorf("blocks of another pool: %+v", none)
	}
	want(t, "delete with another claim", b.Blocks.Delete(ctx, first.CIDR, "c9"), cluster.ErrConflict)
	want(t, "delete", b.Blocks.Delete(ctx, first.CIDR, "c1"), nil)
	gone(t, func() error { _, err := b.Blocks.Get(ctx, first.CIDR); return err })
	want(t, "delete again", b.Blocks.Delete(ctx, first.CIDR, "c1"), nil)
	want(t, "create after the deletion", b.Blocks.Create(ctx, block("10.0.0.0/26", two, "c5")), nil)
	want(t, "a late deletion", b.Blocks.Delete(ctx, first.CIDR, "c1"), cluster.ErrConflict)
}

func testInfo(t *testing.T, b cluster.Backend) {
	ctx := t.Context()
	_, before, err := b.Info.Get(ctx)
	want(t, "get of nothing", err, cluster.ErrNotFound)
	r, err := b.Info.Put(ctx, cluster.ClusterInfo{ID: "x"})
	want(t, "put", err, nil)
	_, err = b.Info.Put(ctx, cluster.ClusterInfo{ID: "y"})
	want(t, "put without a version", err, cluster.ErrExists)
	old := r
	r.EndedRecoveries, r.Recovery = []string{"a"}, &cluster.Recovery{ID: "b", Reason: "test"}
	r, err = b.Info.Put(ctx, r)
	want(t, "put of the next", err, nil)
	old.DefaultPoolRemoved = true
	_, err = b.Info.Put(ctx, old)
	want(t, "put of an old version", err, cluster.ErrConflict)
	got, after, err := b.Info.Get(ctx)
	want(t, "get", err, nil)
	same(t, "record", r, got)
	if after.Before(before) || !before.Before(after) {
		t.Errorf("position %+v after %+v", after, before)
	}
}

func testNetworks(t *testing.T, b cluster.Backend) {
	n := cluster.NodeNetwork{
		Node: NodeNamed("node-1").ID, Agent: "a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		Blocks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/26")}, Routing: cluster.RoutingNative, AgentVersion: "1",
	}
	next := n
	next.Agent, next.Health = "b", []netip.Addr{netip.MustParseAddr("10.0.0.2")}
	testPublished(t, b.Networks, n, next, func(n *cluster.NodeNetwork) *cluster.Version { return &n.Version })
}

func testGroups(t *testing.T, b cluster.Backend) {
	g := cluster.EndpointGroup{
		Node: NodeNamed("node-1." + strings.Repeat("x", 40)).ID, Slot: 4095, // with a name that is too long
		LabelSets: []cluster.LabelSet{{Namespace: "shop", Labels: map[string]string{"app": "web"}}},
		Endpoints: []cluster.PublishedEndpoint{{
			Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}, Pod: "web-1", NamedPorts: []cluster.PublishedPort{{Name: "http", Protocol: "TCP", Port: 80}},
		}},
	}
	next := g
	next.Endpoints = nil
	testPublished(t, b.Endpoints, g, next, func(g *cluster.EndpointGroup) *cluster.Version { return &g.Version })
}

// testPublished puts two states of a record.
func testPublished[T any](t *testing.T, b cluster.Published[T], one, next T, version func(*T) *cluster.Version) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changes, err := b.Watch(ctx, cluster.Resume[T]{})
	want(t, "watch", err, nil)
	first, err := b.Put(ctx, one)
	want(t, "put", err, nil)
	same(t, "created", one, first)
	_, err = b.Put(ctx, one)
	want(t, "put again without a version", err, cluster.ErrExists)
	*version(&next) = *version(&first)
	second, err := b.Put(ctx, next)
	want(t, "put of the next", err, nil)
	late := one
	*version(&late) = *version(&first)
	_, err = b.Put(ctx, late)
	want(t, "put of an old version", err, cluster.ErrConflict)
	same(t, "records", []T{next}, collect(t, b.All(ctx)))
	want(t, "delete of an old version", b.Delete(ctx, first), cluster.ErrConflict)
	told := map[string]cluster.Version{}
	waitTold := func(n int) {
		for end := time.After(wait); len(told) != n || n == 1 && told["it"] != *version(&second); {
			select {
			case c := <-changes:
				if c.Kind == cluster.Deleted {
					c.Name = "it"
				}
				Apply(told, cluster.Change[T]{Kind: c.Kind, Name: "it", Item: c.Item, All: c.All}, func(item T) (string, cluster.Version) { return "it", *version(&item) })
			case <-end:
				t.Fatalf("the watch has told %v", told)
			}
		}
	}
	waitTold(1)
	want(t, "delete", b.Delete(ctx, second), nil)
	waitTold(0)
	want(t, "delete again", b.Delete(ctx, second), nil)
	_, err = b.Put(ctx, second)
	want(t, "put of one that is gone", err, cluster.ErrConflict)
	cancel()
	for range changes {
	}
}

// testClaimRace has many claim the same blocks at once: each block has one owner.
func testClaimRace(t *testing.T, b cluster.Backend) {
	var claiming sync.WaitGroup
	var mu sync.Mutex
	owners := map[string]string{}
	for i := range 8 {
		id := NodeNamed(fmt.Sprintf("node-%d", i)).ID
		claiming.Go(func() {
			for j := range 16 {
				cidr := fmt.Sprintf("10.0.%d.0/24", j)
				err := b.Blocks.Create(context.WithoutCancel(t.Context()), block(cidr, id, id.Key))
				mu.Lock()
				if err == nil && owners[cidr] != "" {
					t.Errorf("%s is claimed by %s and %s", cidr, owners[cidr], id)
				} else if err == nil {
					owners[cidr] = id.String()
				} else if !errors.Is(err, cluster.ErrExists) {
					t.Errorf("create: %v", err)
				}
				mu.Unlock()
			}
		})
	}
	claiming.Wait()
	for _, bl := range collect(t, b.Blocks.All(t.Context(), cluster.BlockFilter{})) {
		if owner := owners[bl.CIDR.String()]; owner != bl.Owner.String() {
			t.Errorf("%s is %s's by its record, and was claimed by %q", bl.CIDR, bl.Owner, owner)
		}
	}
	if len(owners) != 16 {
		t.Errorf("%d blocks are claimed, want 16", len(owners))
	}
}

// testWatch waits until a watch has told what is there in the end, whatever it has skipped.
func testWatch(t *testing.T, b cluster.Backend) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	keep, leave := NodeNamed("keep"), NodeNamed("leave")
	left, err := b.Nodes.Create(ctx, leave)
	want(t, "create", err, nil)
	changes, err := b.Nodes.Watch(ctx)
	want(t, "watch", err, nil)
	first, ok := <-changes
	if !ok || first.Kind != cluster.Snapshot || len(first.All) != 1 {
		t.Fatalf("the first change is %+v, want a snapshot of one node", first)
	}
	created, err := b.Nodes.Create(ctx, keep)
	want(t, "create", err, nil)
	created.State = cluster.NodeReleasing
	_, err = b.Nodes.Update(ctx, created)
	want(t, "update", err, nil)
	want(t, "delete", b.Nodes.Delete(ctx, left), nil)
	told := map[string]cluster.NodeState{leave.ID.RecordName(): cluster.NodeActive}
	for end := time.After(wait); len(told) != 1 || told[keep.ID.RecordName()] != cluster.NodeReleasing; {
		select {
		case c, ok := <-changes:
			if !ok {
				t.Fatal("the watch has ended")
			}
			Apply(told, c, func(n cluster.Node) (string, cluster.NodeState) { return n.ID.RecordName(), n.State })
		case <-end:
			t.Fatalf("the watch has told %v", told)
		}
	}
	cancel()
	for range changes {
	}
}

// Apply brings what a watch has told up to date.
func Apply[T, V any](told map[string]V, c cluster.Change[T], read func(T) (string, V)) {
	switch c.Kind {
	case cluster.Snapshot:
		if !c.Continues {
			clear(told)
		}
		for _, item := range c.All {
			name, value := read(item)
			told[name] = value
		}
	case cluster.Deleted:
		delete(told, c.Name)
	case cluster.Put:
		_, told[c.Name] = read(c.Item)
	}
}

func testLongNames(t *testing.T, b cluster.Backend) {
	long := ""
	for len(long) < 240 {
		long += "a-long-label."
	}
	for _, name := range []string{long + "x", "With_Capitals", "10.0.0.1", "ends-with-a-dot."} {
		n, err := b.Nodes.Create(t.Context(), NodeNamed(name))
		want(t, "create "+name, err, nil)
		got, err := b.Nodes.Get(t.Context(), n.ID)
		want(t, "get "+name, err, nil)
		same(t, "node", n, got)
		_, err = b.Sessions.Put(t.Context(), cluster.Session{Node: n.ID, ID: "s"})
		want(t, "session of "+name, err, nil)
	}
}

// testManyBlocks lists more than one page.
func testManyBlocks(t *testing.T, b cluster.Backend) {
	const n = 1100
	pool := cluster.Pool{Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}.WithDefaults()
	owner := NodeNamed("node-1").ID
	for i := range uint64(n) {
		err := b.Blocks.Create(t.Context(), cluster.Block{CIDR: pool.Block(cluster.IPv4, i), Pool: "default", Owner: owner, Claim: "c"})
		if err != nil {
			t.Fatal(err)
		}
	}
	seen := map[netip.Prefix]bool{}
	for _, one := range collect(t, b.Blocks.All(t.Context(), cluster.BlockFilter{})) {
		seen[one.CIDR] = true
	}
	if len(seen) != n {
		t.Errorf("%d blocks are listed, want %d", len(seen), n)
	}
	if all := collect(t, b.Blocks.All(t.Context(), cluster.BlockFilter{Owner: owner})); len(all) != n {
		t.Errorf("%d blocks are listed, want %d", len(all), n)
	}
}
