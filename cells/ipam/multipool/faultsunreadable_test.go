package multipool_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/embedded/embeddedtest"
)

const unreadable = `{"version":2,"of":"a later agent"}`

// TestPoolsUnreadableRecord administers pools beside a record that cannot be read. What may be in it is not given to
// another pool.
func TestPoolsUnreadableRecord(t *testing.T) {
	for key, want := range map[string]struct{ create, overlap, remove error }{
		"blocks/10-9-0-0-28": {nil, admin.ErrOverlap, nil},
		"blocks/10-1-0-0-28": {nil, nil, admin.ErrPoolInUse},
		"pools/other":        {cluster.ErrUnreadable, cluster.ErrUnreadable, nil},
	} {
		t.Run(key, func(t *testing.T) {
			s := embeddedtest.Open(t, t.TempDir())
			w := newWorld(t, s.Backend())
			p := w.pool("there", 28, "10.1.0.0/24")
			embeddedtest.Write(t, s, key, unreadable)
			pools := admin.NewPools(w.backend)
			check := func(what string, err, want error) {
				t.Helper()
				if !errors.Is(err, want) || want == nil && err != nil {
					t.Errorf("%s: error %v, want %v", what, err, want)
				}
			}
			_, err := pools.Put(t.Context(), cluster.Pool{Name: "apart", Prefixes: prefixes("10.2.0.0/24")})
			check("create", err, want.create)
			_, err = pools.Put(t.Context(), cluster.Pool{Name: "around", Prefixes: prefixes("10.9.0.0/24")})
			check("create around it", err, want.overlap)
			p.Disabled = true
			_, err = pools.Put(t.Context(), p)
			check("change", err, nil)
			list, err := pools.List(t.Context())
			check("list", err, nil)
			states := map[string]cluster.PoolState{}
			for _, p := range list {
				states[p.Name] = p.State
			}
			if key == "pools/other" && states["other"] != admin.PoolUnreadable || states["there"] != cluster.PoolAccepted {
				t.Errorf("the list has %v", states)
			}
			check("delete", pools.Delete(t.Context(), "there"), want.remove)
		})
	}
}

// TestRecoveryUnreadableRecord lists a node whose record cannot be read.
func TestRecoveryUnreadableRecord(t *testing.T) {
	for _, key := range []string{"nodes/other.aaaaaaaaaa", "sessions/other.aaaaaaaaaa/session"} {
		t.Run(key, func(t *testing.T) {
			s := embeddedtest.Open(t, t.TempDir())
			w := newWorld(t, s.Backend())
			w.pool("default", 28, "10.0.0.0/24")
			other := cluster.NodeID{Name: "other", Key: "aaaaaaaaaa"}
			embeddedtest.Write(t, s, key, unreadable)
			if key != "nodes/"+other.RecordName() {
				if _, err := w.backend.Nodes.Create(t.Context(), cluster.Node{ID: other, State: cluster.NodeActive}); err != nil {
					t.Fatal(err)
				}
			}
			w.beginRecovery()
			one := w.machine("one", 1)
			w.wait("the other node alone has not written its blocks", func() bool {
				list := w.unwritten()
				return len(list) == 1 && list[0].Node == other
			})
			if err := admin.EndRecovery(t.Context(), w.backend, true); err != nil {
				t.Fatal(err)
			}
			w.mustAllocate(one)
		})
	}
}

// TestNodeDeleteUnreadableConflict: a later version has written the session that names a conflict. The node that it
// names may be deleted in a recovery only.
func TestNodeDeleteUnreadableConflict(t *testing.T) {
	s := embeddedtest.Open(t, t.TempDir())
	w := newWorld(t, s.Backend())
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/28") // one block
	one := w.machine("one", 1)
	w.mustAllocate(one)
	former := w.loseFolder(one)
	w.wait("the conflict is reported", func() bool {
		s, err := w.backend.Sessions.Get(t.Context(), one.controller.Status().Node)
		return err == nil && slices.Contains(s.OtherOwners, former.String())
	})
	w.stop(one)
	now := one.controller.Status().Node
	key := "sessions/" + now.RecordName() + "/session"
	embeddedtest.Write(t, s, key, unreadable)
	err := w.nodeAdmin().Delete(t.Context(), former, true)
	if !errors.Is(err, admin.ErrConflictsUnknown) || !strings.Contains(err.Error(), now.String()) || len(w.blocks()) != 1 {
		t.Errorf("error %v, want %v with node %s; blocks %v", err, admin.ErrConflictsUnknown, now, w.blocks())
	}
	w.beginRecovery()
	if err := w.nodeAdmin().Delete(t.Context(), former, true); err != nil {
		t.Errorf("in a recovery: %v", err)
	}
}

func TestNodeAdminUnreadableRecord(t *testing.T) {
	for _, key := range []string{"nodes/other.aaaaaaaaaa", "sessions/other.aaaaaaaaaa/session", "blocks/10-9-0-0-28"} {
		t.Run(key, func(t *testing.T) {
			s := embeddedtest.Open(t, t.TempDir())
			w := newWorld(t, s.Backend())
			w.pool("default", 28, "10.0.0.0/24")
			one := w.machine("one", 1)
			w.mustAllocate(one)
			embeddedtest.Write(t, s, key, unreadable)
			nodes := w.nodeAdmin()
			list, err := nodes.List(t.Context())
			if err != nil {
				t.Errorf("list: %v", err)
			}
			for _, n := range list {
				if n.Node.ID.Name == "other" && n.Node.State != admin.NodeUnreadable || n.Node.ID.Name == "one" && len(n.Blocks) != 1 {
					t.Errorf("the list has %+v", n)
				}
			}
			w.stop(one)
			w.endPods(one)
			found, err := nodes.Find(t.Context(), "one", "")
			if err == nil {
				err = nodes.Delete(t.Context(), found.ID, true)
			}
			if want := map[bool]error{true: admin.ErrConflictsUnknown}[strings.HasPrefix(key, "sessions/")]; !errors.Is(err, want) {
				t.Errorf("delete another node: error %v, want %v", err, want)
			}
		})
	}
}
