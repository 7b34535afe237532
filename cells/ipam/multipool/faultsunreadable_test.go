package multipool_test

import (
	"errors"
	"fmt"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/cells/store/storetest"
)

const unreadable = `{"version":2,"of":"a later agent"}`

// TestPoolsBesideUnreadable administers pools beside a record that cannot be read. What may be in it is not given to another pool.
func TestPoolsBesideUnreadable(t *testing.T) {
	for key, want := range map[string]struct{ create, overlap, remove error }{
		"blocks/10-9-0-0-28": {nil, multipool.ErrOverlap, nil},
		"blocks/10-1-0-0-28": {nil, nil, multipool.ErrPoolInUse},
		"pools/other":        {cluster.ErrUnreadable, cluster.ErrUnreadable, nil},
	} {
		t.Run(key, func(t *testing.T) {
			s := storetest.New(t)
			w := newWorld(t, cluster.OnStore(s))
			p := w.pool("there", 28, "10.1.0.0/24")
			if err := s.Create(t.Context(), key, []byte(unreadable)); err != nil {
				t.Fatal(err)
			}
			admin := multipool.NewPoolAdmin(w.backend)
			check := func(what string, err, want error) {
				t.Helper()
				if !errors.Is(err, want) || want == nil && err != nil {
					t.Errorf("%s: error %v, want %v", what, err, want)
				}
			}
			_, err := admin.Put(t.Context(), cluster.Pool{Name: "apart", Prefixes: prefixes("10.2.0.0/24")})
			check("create", err, want.create)
			_, err = admin.Put(t.Context(), cluster.Pool{Name: "around", Prefixes: prefixes("10.9.0.0/24")})
			check("create around it", err, want.overlap)
			p.Disabled = true
			_, err = admin.Put(t.Context(), p)
			check("change", err, nil)
			list, err := admin.List(t.Context())
			check("list", err, nil)
			states := map[string]cluster.PoolState{}
			for _, p := range list {
				states[p.Name] = p.State
			}
			if key == "pools/other" && states["other"] != multipool.PoolUnreadable || states["there"] != cluster.PoolAccepted {
				t.Errorf("the list has %v", states)
			}
			check("delete", admin.Delete(t.Context(), "there"), want.remove)
		})
	}
}

// TestRecoveryBesideUnreadable has a recovery wait for a node whose record cannot be read, until it is excluded.
func TestRecoveryBesideUnreadable(t *testing.T) {
	for _, key := range []string{"nodes/other.aaaaaaaaaa", "sessions/other.aaaaaaaaaa/session"} {
		t.Run(key, func(t *testing.T) {
			s := storetest.New(t)
			w := newWorld(t, cluster.OnStore(s))
			w.pool("default", 28, "10.0.0.0/24")
			other := cluster.NodeID{Name: "other", Key: "aaaaaaaaaa"}
			err := s.Create(t.Context(), key, []byte(unreadable))
			if err == nil && key != "nodes/"+other.RecordName() {
				_, err = w.backend.Nodes.Create(t.Context(), cluster.Node{ID: other, State: cluster.NodeActive})
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := w.nodeAdmin().BeginRecovery(t.Context()); err != nil {
				t.Fatal(err)
			}
			one := w.machine("one", 1)
			w.wait("the recovery waits for the other node alone", func() bool {
				r, _, err := w.backend.Info.Get(t.Context())
				if err != nil || r.Recovery == nil {
					t.Fatalf("the record of the cluster is %+v, error %v", r, err)
				}
				waiting, err := multipool.Unconfirmed(t.Context(), w.backend, r)
				if err != nil {
					t.Fatal(err)
				}
				return fmt.Sprint(waiting) == fmt.Sprint([]cluster.NodeID{other})
			})
			if err := w.nodeAdmin().Exclude(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			w.mustAllocate(one)
		})
	}
}

func TestNodeAdminBesideUnreadable(t *testing.T) {
	for _, key := range []string{"nodes/other.aaaaaaaaaa", "sessions/other.aaaaaaaaaa/session", "blocks/10-9-0-0-28"} {
		t.Run(key, func(t *testing.T) {
			s := storetest.New(t)
			w := newWorld(t, cluster.OnStore(s))
			w.pool("default", 28, "10.0.0.0/24")
			one := w.machine("one", 1)
			w.mustAllocate(one)
			if err := s.Create(t.Context(), key, []byte(unreadable)); err != nil {
				t.Fatal(err)
			}
			admin := w.nodeAdmin()
			list, err := admin.List(t.Context())
			if err != nil {
				t.Errorf("list: %v", err)
			}
			for _, n := range list {
				if n.Node.ID.Name == "other" && n.Node.State != multipool.NodeUnreadable || n.Node.ID.Name == "one" && len(n.Blocks) != 1 {
					t.Errorf("the list has %+v", n)
				}
			}
			w.stop(one)
			w.endPods(one)
			found, err := admin.Find(t.Context(), "one", "")
			if err == nil {
				err = admin.Delete(t.Context(), found.ID, true)
			}
			if err != nil {
				t.Errorf("delete another node: %v", err)
			}
		})
	}
}
