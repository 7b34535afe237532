package records_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/cells/kubernetes/records/recordstest"
	"porin.dev/porin/internal/testutil"
)

// recently returns what Recent says, as soon as ok holds, and the requests meanwhile.
func recently(t *testing.T, server *kubernetestest.Server, b cluster.Backend, ok func(cluster.ClusterInfo, cluster.Position, error) bool) (requests []kubernetestest.Request) {
	t.Helper()
	testutil.Eventually(t, func() error {
		server.Requests()
		info, position, err := b.Info.Recent(t.Context())
		requests = server.Requests()
		if !ok(info, position, err) {
			return fmt.Errorf("recently %+v at %+v, error %v", info, position, err)
		}
		return nil
	})
	return requests
}

// TestInfoRecent: two watchers are one watch of the API server. While it is open Recent makes no request, and bookmarks
// move its position.
func TestInfoRecent(t *testing.T) {
	server, b := recordstest.Start(t)
	if _, _, err := b.Info.Get(t.Context()); !errors.Is(err, cluster.ErrNotFound) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	server.Requests()
	var watches []<-chan cluster.Change[cluster.ClusterInfo]
	for range 2 {
		changes, err := b.Info.Watch(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if change := <-changes; change.Kind != cluster.Snapshot || len(change.All) > 0 {
			t.Errorf("the watch begins with %+v, want an empty snapshot", change)
		}
		watches = append(watches, changes)
	}
	if requests := server.Requests(); len(requests) > 2 {
		t.Errorf("requests of two watchers: %v, want a list and a watch", requests)
	}
	if _, err := b.Info.Put(t.Context(), cluster.ClusterInfo{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	for _, changes := range watches {
		if change := <-changes; change.Kind != cluster.Put || change.Item.ID != "a" {
			t.Errorf("the watch tells %+v, want the record", change)
		}
	}
	requests := recently(t, server, b, func(i cluster.ClusterInfo, _ cluster.Position, err error) bool { return err == nil && i.ID == "a" })
	if len(requests) > 0 {
		t.Errorf("requests of Recent while a watch is open: %v", requests)
	}
	if _, err := b.Nodes.Create(t.Context(), cluster.Node{ID: cluster.NodeID{Name: "one", Key: cluster.NewKey()}, State: cluster.NodeActive}); err != nil {
		t.Fatal(err)
	}
	_, now, err := b.Info.Get(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	server.Bookmark()
	recently(t, server, b, func(_ cluster.ClusterInfo, p cluster.Position, err error) bool { return err == nil && p == now })

	cancel()
	for _, changes := range watches {
		for range changes {
		}
	}
	requests = recently(t, server, b, func(i cluster.ClusterInfo, p cluster.Position, err error) bool {
		return err == nil && i.ID == "a" && p == now
	})
	if len(requests) != 1 {
		t.Errorf("requests of Recent without a watch: %v, want one", requests)
	}
}

// TestInfoRecentAtStart: right after the start of a watch, Recent waits for its list and makes none of its own.
func TestInfoRecentAtStart(t *testing.T) {
	server, b := recordstest.Start(t)
	if _, err := b.Info.Put(t.Context(), cluster.ClusterInfo{ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Info.Get(t.Context()); err != nil { // this has read which store it is
		t.Fatal(err)
	}
	server.Requests()
	changes, err := b.Info.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info, _, err := b.Info.Recent(t.Context()); err != nil || info.ID != "a" {
		t.Errorf("recently %+v, error %v", info, err)
	}
	<-changes
	if requests := slices.DeleteFunc(server.Requests(), func(r kubernetestest.Request) bool { return r.Verb == "watch" }); len(requests) != 1 {
		t.Errorf("requests: %v, want one list", requests)
	}
}
