package records_test

import (
	"context"
	"net/netip"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
)

// unreadable is a record of a later version.
func unreadable(name string) map[string]any {
	return map[string]any{
		"apiVersion": "porin.dev/v1alpha1", "kind": "PorinNetwork", "metadata": map[string]any{"name": name + ".aaaaaaaaaa"},
		"spec": map[string]any{"node": map[string]any{"name": name, "key": "aaaaaaaaaa"}, "agent": "a", "addresses": []any{"a later form"}, "routing": "later"},
	}
}

func network(name string) cluster.NodeNetwork {
	return cluster.NodeNetwork{
		Node: cluster.NodeID{Name: name, Key: "aaaaaaaaaa"}, Agent: "a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Routing: cluster.RoutingNative,
	}
}

// networksTell returns what a watch of the networks tells until done.
func networksTell(t *testing.T, b cluster.Backend, from cluster.Resume[cluster.NodeNetwork], done func(cluster.Change[cluster.NodeNetwork]) bool) (all []cluster.Change[cluster.NodeNetwork]) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := b.Networks.Watch(ctx, from)
	if err != nil {
		t.Fatal(err)
	}
	for c := range changes {
		if all = append(all, c); done(c) {
			break
		}
	}
	cancel()
	for range changes {
	}
	return all
}

func isSnapshot(c cluster.Change[cluster.NodeNetwork]) bool { return c.Kind == cluster.Snapshot }

// TestMarkNeedsAll: a watch that leaves out a record which it cannot read has no marks. Another version may read it.
func TestMarkNeedsAll(t *testing.T) {
	server, b := recordstest.Start(t)
	one, err := b.Networks.Put(t.Context(), network("one"))
	if err != nil {
		t.Fatal(err)
	}
	if c := networksTell(t, b, cluster.Resume[cluster.NodeNetwork]{}, isSnapshot)[0]; c.Mark == "" {
		t.Error("a list of readable records has no mark")
	}
	server.Put(unreadable("two"))
	if c := networksTell(t, b, cluster.Resume[cluster.NodeNetwork]{}, isSnapshot)[0]; c.Mark != "" || len(c.All) != 1 {
		t.Errorf("a list of %d records without one that cannot be read has the mark %q", len(c.All), c.Mark)
	}
	server.Delete("porinnetworks", "", "two.aaaaaaaaaa")
	told := networksTell(t, b, cluster.Resume[cluster.NodeNetwork]{}, func(c cluster.Change[cluster.NodeNetwork]) bool {
		if c.Kind == cluster.Snapshot {
			server.Put(unreadable("two"))
			one.AgentVersion = "2"
			if one, err = b.Networks.Put(t.Context(), one); err != nil {
				t.Error(err)
			}
		}
		return c.Kind == cluster.Put
	})
	if c := told[len(told)-1]; c.Mark != "" {
		t.Errorf("a change after one that cannot be read has the mark %q", c.Mark)
	}
}

// TestResume: a watch goes on from the mark of another one, unless the caller's records are of another store.
func TestResume(t *testing.T) {
	server, b := recordstest.Start(t)
	for _, name := range []string{"one", "two"} {
		if _, err := b.Networks.Put(t.Context(), network(name)); err != nil {
			t.Fatal(err)
		}
	}
	first := networksTell(t, b, cluster.Resume[cluster.NodeNetwork]{}, isSnapshot)[0]
	var check error
	from := cluster.Resume[cluster.NodeNetwork]{
		Mark: first.Mark, Check: func(context.Context) error { return check },
		Pages: func(page func([]cluster.NodeNetwork)) error { page(first.All); return nil },
	}
	if _, err := b.Networks.Put(t.Context(), network("three")); err != nil {
		t.Fatal(err)
	}
	server.Requests()
	told := networksTell(t, b, from, func(c cluster.Change[cluster.NodeNetwork]) bool { return c.Kind == cluster.Put })
	if len(told) != 2 || !told[0].Resumed || len(told[0].All) != 2 || told[1].Item.Node.Name != "three" || told[1].Mark == "" || lists(server) != 0 {
		t.Errorf("a watch that goes on has told %+v, with %d lists", told, lists(server))
	}
	for name, change := range map[string]func(){
		"other records": func() { check = cluster.ErrOtherOrigin },
		"no mark":       func() { from.Mark = "" },
		"another mark":  func() { from.Mark = "{" },
		"another shape": func() { from.Mark = `{"shape":1,"watch":{"version":"1"}}` },
	} {
		check, from.Mark = nil, first.Mark
		change()
		if c := networksTell(t, b, from, isSnapshot)[0]; c.Resumed || len(c.All) != 3 {
			t.Errorf("%s: the watch begins with %+v, want a list", name, c)
		}
	}
}

// lists counts the lists of all networks.
func lists(server *kubernetestest.Server) (n int) {
	for _, q := range server.Requests() {
		if q.Verb == "list" && q.Resource == "porinnetworks" && q.Selector == "" {
			n++
		}
	}
	return n
}
