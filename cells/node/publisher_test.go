package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/clustertest"
	"porin.dev/porin/cells/node/cache"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/watchable"
)

// member is a node of a store without a kernel.
type member struct {
	self      watchable.Value[Self]
	peers     *Peers
	publisher *publisher
}

func newMember(t *testing.T, b cluster.Backend, own Self) *member {
	t.Helper()
	m := &member{}
	log := slog.New(slog.DiscardHandler)
	m.self.Set(own)
	m.peers = NewPeers(&b, nil, noKubernetes{}, &m.self, log)
	n := &Node{peers: m.peers}
	m.publisher = newPublisher(b.Networks, n.peers, b.Info, DefaultConfig(), log)
	m.peers.task.Start(nil)
	m.publisher.task.Start(nil)
	t.Cleanup(func() {
		if err := errors.Join(m.publisher.task.Stop(t.Context()), m.peers.task.Stop(t.Context())); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return m
}

func (m *member) knows(t *testing.T, name string, blocks []netip.Prefix) {
	t.Helper()
	testutil.Eventually(t, func() error {
		view, _ := m.peers.View()
		for _, p := range view.Peers {
			if p.Node.Name == name && slices.Equal(p.Blocks, blocks) {
				return nil
			}
		}
		return fmt.Errorf("it knows %+v, want node %s with %v", view.Peers, name, blocks)
	})
}

func (m *member) published(t *testing.T) {
	t.Helper()
	testutil.Eventually(t, func() error {
		view, _ := m.peers.View()
		if self, _ := m.self.Get(); view.Own == nil || view.Own.Agent != m.publisher.agent || !slices.Equal(view.Own.Blocks, self.Blocks) {
			return errors.New("its record is not in the store")
		}
		return nil
	})
}

// TestPublish has two nodes know each other, also after a wipe, a restore and a deletion of their records.
func TestPublish(t *testing.T) {
	s := clustertest.NewStrict(1)
	t.Cleanup(s.Close)
	b := s.Backend()
	one := Self{Node: IDOfName("one"), Addresses: addresses("192.0.2.1"), Blocks: prefixes("10.1.0.0/24")}
	two := Self{Node: IDOfName("two"), Addresses: addresses("192.0.2.2"), Blocks: prefixes("10.2.0.0/24")}
	a, z := newMember(t, b, one), newMember(t, b, two)
	a.knows(t, "two", two.Blocks)
	z.knows(t, "one", one.Blocks)
	a.published(t)
	z.published(t)

	backup := s.Backup()
	two.Blocks = prefixes("10.2.0.0/24", "10.3.0.0/24")
	z.self.Set(two)
	a.knows(t, "two", two.Blocks)
	for name, lose := range map[string]func(){"restored": func() { s.Restore(backup) }, "wiped": s.Wipe} {
		lose()
		testutil.Eventually(t, func() error {
			for n, err := range b.Networks.All(t.Context()) {
				if err == nil && n.Node == two.Node && slices.Equal(n.Blocks, two.Blocks) {
					return nil
				}
			}
			return errors.New("a record was not written again after the store was " + name)
		})
		a.knows(t, "two", two.Blocks)
	}
	a.published(t)
	z.published(t)
}

// TestOwnRecordIsNoPeer: an agent finds the record that the previous one has written, perhaps before it knows who it
// is.
func TestOwnRecordIsNoPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.NewStrict(1)
		defer s.Close()
		b := s.Backend()
		own := Self{Node: IDOfName("one"), Addresses: addresses("192.0.2.1"), Blocks: prefixes("10.1.0.0/24")}
		_, err := b.Networks.Put(t.Context(), cluster.NodeNetwork{Node: own.Node, Addresses: own.Addresses, Blocks: own.Blocks})
		must(t, err)
		m := &member{}
		m.peers = NewPeers(&b, nil, noKubernetes{}, &m.self, slog.New(slog.DiscardHandler))
		m.peers.task.Start(nil)
		defer func() { must(t, m.peers.task.Stop(t.Context())) }()
		synctest.Wait()
		if view, _ := m.peers.View(); view.Ready || len(view.Peers) > 0 {
			t.Errorf("a node that does not know who it is has the view %+v", view)
		}
		m.self.Set(own)
		synctest.Wait()
		if view, _ := m.peers.View(); !view.Ready || view.Own == nil || len(view.Peers) > 0 {
			t.Errorf("the node has the view %+v, want its own record alone", view)
		}
	})
}

// TestNodeReturns deletes a node whose name says what it has, and has it come back.
func TestNodeReturns(t *testing.T) {
	s := clustertest.NewStrict(2)
	t.Cleanup(s.Close)
	b := s.Backend()
	one := Self{Node: IDOfName("one"), Addresses: addresses("192.0.2.1"), Blocks: prefixes("10.1.0.0/24")}
	two := Self{Node: IDOfName("two"), Addresses: addresses("192.0.2.2"), Blocks: prefixes("10.2.0.0/24")}
	a := newMember(t, b, one)
	func() {
		z := newMember(t, b, two)
		a.knows(t, "two", two.Blocks)
		z.published(t)
		must(t, errors.Join(z.publisher.task.Stop(t.Context()), z.peers.task.Stop(t.Context())))
	}()
	if err := admin.NewNodes(b).Delete(t.Context(), two.Node, false); !errors.Is(err, admin.ErrMachineMayRun) {
		t.Errorf("deleted without a word that the machine is off: %v", err)
	}
	must(t, admin.NewNodes(b).Delete(t.Context(), two.Node, true))
	testutil.Eventually(t, func() error {
		if view, _ := a.peers.View(); len(view.Peers) != 0 {
			return fmt.Errorf("it knows %+v", view.Peers)
		}
		return nil
	})
	for n, err := range b.Networks.All(t.Context()) {
		if err == nil && n.Node == two.Node && !n.Deleting {
			t.Errorf("the record is left: %+v", n)
		}
	}
	z := newMember(t, b, two)
	z.published(t)
	a.knows(t, "two", two.Blocks)
}

// TestNodeDeletedBeforeStart has an agent start after nodes were deleted that a previous agent knew: it knows what they
// had, and of the others nothing.
func TestNodeDeletedBeforeStart(t *testing.T) {
	s := clustertest.NewStrict(5)
	t.Cleanup(s.Close)
	b, dir, log := s.Backend(), t.TempDir(), slog.New(slog.DiscardHandler)
	off, half, lost := network("off", "192.0.2.2", "10.2.0.0/24"), network("half", "192.0.2.3", "10.3.0.0/24"), network("lost", "192.0.2.4", "10.4.0.0/24")
	former := cache.New(dir, log)
	former.SetOrigin(cache.Origin{Store: "x"})
	former.RecordNetworks(snapshot(off, lost))
	must(t, former.Stop(t.Context()))
	_, infoErr := b.Info.Put(t.Context(), cluster.ClusterInfo{ID: "x", Removed: []string{off.Node.Key, half.Node.Key}})
	_, recordErr := b.Networks.Put(t.Context(), half) // its deletion was interrupted
	must(t, errors.Join(infoErr, recordErr))

	m := &member{}
	m.self.Set(Self{Node: IDOfName("self"), Addresses: addresses("192.0.2.1")})
	c := cache.New(dir, log)
	m.peers = NewPeers(&b, c, noKubernetes{}, &m.self, log)
	m.peers.task.Start(nil)
	t.Cleanup(func() { must(t, errors.Join(m.peers.task.Stop(context.Background()), c.Stop(context.Background()))) })
	testutil.Eventually(t, func() error {
		view, _ := m.peers.View()
		got := slices.SortedFunc(slices.Values(view.Deleted), netip.Prefix.Compare)
		want := prefixes("10.2.0.0/24", "10.3.0.0/24", "192.0.2.2/32", "192.0.2.3/32")
		if len(view.Peers) > 0 || !slices.Equal(got, want) {
			return fmt.Errorf("it knows nodes %+v, and of deleted ones %v; want none, and %v", view.Peers, got, want)
		}
		return nil
	})
}

// TestNodeReplaced starts another machine under the name of one that is gone.
func TestNodeReplaced(t *testing.T) {
	s := clustertest.NewStrict(3)
	t.Cleanup(s.Close)
	b := s.Backend()
	a := newMember(t, b, Self{Node: IDOfName("one"), Addresses: addresses("192.0.2.1")})
	old := Self{Node: IDOfName("two"), Addresses: addresses("192.0.2.2"), Blocks: prefixes("10.2.0.0/24")}
	was := newMember(t, b, old)
	a.knows(t, "two", old.Blocks)
	must(t, errors.Join(was.publisher.task.Stop(t.Context()), was.peers.task.Stop(t.Context())))
	next := old
	next.Addresses = addresses("192.0.2.22")
	newMember(t, b, next)
	testutil.Eventually(t, func() error {
		view, _ := a.peers.View()
		if len(view.Peers) != 1 || !slices.Equal(view.Peers[0].Addresses, next.Addresses) {
			return fmt.Errorf("it knows %+v, want the address of the machine that has the name now", view.Peers)
		}
		return nil
	})
}

// TestTwoMachinesOneName: the first machine reports it.
func TestTwoMachinesOneName(t *testing.T) {
	s := clustertest.NewStrict(4)
	t.Cleanup(s.Close)
	first := newMember(t, s.Backend(), Self{Node: IDOfName("one"), Addresses: addresses("192.0.2.1")})
	first.published(t)
	newMember(t, s.Backend(), Self{Node: IDOfName("one"), Addresses: addresses("192.0.2.2")})
	testutil.Eventually(t, func() error {
		if !first.publisher.overwritten() {
			return errors.New("it does not say that another machine has its name")
		}
		return nil
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPublishTunnel: the published tunnel of a node holds until the next agent knows better.
func TestPublishTunnel(t *testing.T) {
	s := clustertest.NewStrict(3)
	t.Cleanup(s.Close)
	b := s.Backend()
	one := Self{Node: IDOfName("one"), Addresses: addresses("192.0.2.1"), Blocks: prefixes("10.1.0.0/24"), Routing: cluster.RoutingVXLAN}
	former := cluster.NodeNetwork{
		Node: one.Node, Agent: "former", Addresses: one.Addresses, Blocks: one.Blocks, Routing: one.Routing, TunnelPort: 8472, Tunnel: addresses("10.1.0.1"),
	}
	if _, err := b.Networks.Put(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	a := newMember(t, b, one)
	a.published(t)
	is := func(port uint16, tunnel []netip.Addr) {
		t.Helper()
		testutil.Eventually(t, func() error {
			if view, _ := a.peers.View(); view.Own.TunnelPort != port || !slices.Equal(view.Own.Tunnel, tunnel) {
				return fmt.Errorf("published port %d and %v, want %d and %v", view.Own.TunnelPort, view.Own.Tunnel, port, tunnel)
			}
			return nil
		})
	}
	is(8472, former.Tunnel)
	one.Tunnel = TunnelEnd{Observed: true, Port: 8472, Addresses: addresses("10.1.0.2")}
	a.self.Set(one)
	is(8472, one.Tunnel.Addresses)
	one.Tunnel = TunnelEnd{Observed: true}
	a.self.Set(one)
	is(0, nil)
	if a.publisher.overwritten() {
		t.Error("it takes its own changes for another machine's")
	}
}

// nodeObjects are the podCIDRs of Nodes. With an entry "" the API server is away.
type nodeObjects map[string]string

func (nodeObjects) Identity() (string, []netip.Addr, <-chan struct{}) { return "", nil, nil }

func (n nodeObjects) HasPodCIDR(_ context.Context, name string, cidr netip.Prefix) (bool, error) {
	if _, away := n[""]; away {
		return false, errors.New("the API server is away")
	}
	return n[name] == cidr.String(), nil
}

// TestPodCIDRConflict has two records with one podCIDR, after a Node was deleted and another got its podCIDR.
func TestPodCIDRConflict(t *testing.T) {
	for _, row := range []struct {
		name    string
		objects nodeObjects
		winner  string
	}{
		{"first deleted", nodeObjects{"late": "10.1.0.0/24"}, "late"},
		{"first has another", nodeObjects{"early": "10.2.0.0/24", "late": "10.1.0.0/24"}, "late"},
		{"second deleted", nodeObjects{"early": "10.1.0.0/24"}, "early"},
		{"both deleted", nodeObjects{}, "early"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clustertest.NewStrict(1)
				defer s.Close()
				b := s.Backend()
				early, late := network("early", "192.0.2.1", "10.1.0.0/24"), network("late", "192.0.2.2", "10.1.0.0/24")
				seen := map[string]*member{}
				for _, own := range []Self{self, {Node: early.Node, Addresses: early.Addresses, Blocks: early.Blocks}} {
					m := &member{}
					m.self.Set(own)
					m.peers = NewPeers(&b, nil, row.objects, &m.self, slog.New(slog.DiscardHandler))
					m.peers.task.Start(nil)
					defer func() { _ = m.peers.task.Stop(context.WithoutCancel(t.Context())) }()
					seen[own.Node.Name] = m
				}
				for _, record := range []cluster.NodeNetwork{early, late} {
					if _, err := b.Networks.Put(t.Context(), record); err != nil {
						t.Fatal(err)
					}
					time.Sleep(2 * viewPause) // of the bubble: the first record is seen before the second
				}
				synctest.Wait()
				view, _ := seen["self"].peers.View()
				for _, p := range view.Peers {
					if has := len(p.Blocks) == 1; has != (p.Node.Name == row.winner) {
						t.Errorf("another node has %s with %v, want %s with the block", p.Node.Name, p.Blocks, row.winner)
					}
				}
				view, _ = seen["early"].peers.View()
				if len(view.Peers) != 1 || (len(view.Peers[0].Blocks) == 1) != (row.winner == "late") {
					t.Errorf("the first node knows %+v, want %s with the block", view.Peers, row.winner)
				}
			})
		})
	}
}

// TestPodCIDRConflictAway: the last answer about a podCIDR counts while the API server is away, and a later one
// replaces it.
func TestPodCIDRConflictAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.NewStrict(1)
		defer s.Close()
		b := s.Backend()
		objects := nodeObjects{"late": "10.1.0.0/24"}
		m := &member{}
		m.peers = NewPeers(&b, nil, objects, &m.self, slog.New(slog.DiscardHandler))
		early, late := network("early", "192.0.2.1", "10.1.0.0/24"), network("late", "192.0.2.2", "10.1.0.0/24")
		for _, record := range []cluster.NodeNetwork{early, late} {
			m.peers.records.apply(put(record))
		}
		winner := func(when, want string) {
			t.Helper()
			m.peers.publish(t.Context(), self)
			view, _ := m.peers.View()
			for _, p := range view.Peers {
				if has := len(p.Blocks) == 1; has != (p.Node.Name == want) {
					t.Errorf("%s: %s has %v, want %s with the block", when, p.Node.Name, p.Blocks, want)
				}
			}
		}
		winner("at first", "late")
		objects[""] = ""
		m.peers.expireClaims(time.Now().Add(time.Hour))
		winner("the API server is away", "late")
		delete(objects, "")
		delete(objects, "late")
		objects["early"] = "10.1.0.0/24"
		m.peers.expireClaims(time.Now().Add(time.Hour))
		winner("it is back", "early")
	})
}

// TestPodCIDRMovesTwice: a podCIDR goes to a second Node, and within ten minutes to a third.
func TestPodCIDRMovesTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clustertest.NewStrict(1)
		defer s.Close()
		b := s.Backend()
		objects := nodeObjects{}
		m := &member{}
		m.peers = NewPeers(&b, nil, objects, &m.self, slog.New(slog.DiscardHandler))
		for i, name := range []string{"first", "second", "third"} {
			clear(objects) // the Node before was deleted; its record stays until porin node gc
			objects[name] = "10.1.0.0/24"
			m.peers.records.apply(put(network(name, "192.0.2."+string(rune('1'+i)), "10.1.0.0/24")))
			m.peers.publish(t.Context(), self)
			view, _ := m.peers.View()
			for _, p := range view.Peers {
				if has := len(p.Blocks) == 1; has != (p.Node.Name == name) {
					t.Errorf("%s has %v, want %s with the block", p.Node.Name, p.Blocks, name)
				}
			}
		}
	})
}
