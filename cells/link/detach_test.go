package link_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/testutil"
)

// deleteGroup is the link group of what is to be deleted.
const deleteGroup = 0x706f72

var (
	_ endpoint.Pruner   = (*link.Step)(nil)
	_ endpoint.Surveyor = (*link.Step)(nil)
)

func TestDetach(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	ep := n.attach(t, c, endpointOf("eth0", 1))
	for range 2 { // the second time there is nothing to do
		n.detach(t, ep)
		wantLinks(t, n.Namespace)
		wantLinks(t, c.Namespace)
	}
}

// An agent that died early knows no index.
func TestDetachWithoutIndex(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	n.attach(t, c, endpointOf("eth0", 1))
	other := n.attach(t, c, endpointOf("eth1", 2))
	n.detach(t, endpointOf("eth0", 1))
	wantLinks(t, n.Namespace, other.Host.Name)
	wantLinks(t, c.Namespace, "eth1")
}

// A renamed host end goes all the same: it would stay up, with an address that the next pod gets.
func TestDetachRenamed(t *testing.T) {
	for name, forget := range map[string]bool{"with its index": false, "without an index": true} {
		t.Run(name, func(t *testing.T) {
			n, c := newNode(t), newContainer(t)
			ep := n.attach(t, c, endpointOf("eth0", 1))
			other := n.attach(t, c, endpointOf("eth1", 2))
			must(t, n.Netlink(t).LinkSetName(testutil.LinkAt(ep.Host.Index), "renamed"))
			if forget {
				ep = endpointOf("eth0", 1)
			}
			n.detach(t, ep)
			wantLinks(t, n.Namespace, other.Host.Name)
			wantLinks(t, c.Namespace, "eth1")
		})
	}
}

func TestDetachForeign(t *testing.T) {
	n, c, other := newNode(t), newContainer(t), testutil.NetNS(t)
	uplink := addVeth(t, n.Namespace, "eth0", other, "peer")
	second := n.attach(t, c, endpointOf("eth1", 2))
	ep := n.attach(t, c, endpointOf("eth0", 1))
	for _, index := range []int{uplink, second.Host.Index, 4711} {
		liar := ep
		liar.Host.Index = index
		n.detach(t, liar)
		if _, err := n.step.Restore(t.Context(), liar); !errors.Is(err, link.ErrForeign) && !errors.Is(err, link.ErrNoLink) {
			t.Errorf("restore with index %d: error %v", index, err)
		}
	}
	wantLinks(t, n.Namespace, "eth0", second.Host.Name, ep.Host.Name)
}

// A link that cannot be deleted in the delete group (lo cannot be deleted at all) does not keep others from it.
func TestDetachGroupFails(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	ep := n.attach(t, c, endpointOf("eth0", 1))
	must(t, n.Netlink(t).LinkSetDown(testutil.LinkAt(1)))
	must(t, n.Netlink(t).LinkSetGroup(testutil.LinkAt(1), deleteGroup))
	n.detach(t, ep)
	wantLinks(t, n.Namespace)
}

func TestDetachEndsWithContext(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	ep := n.attach(t, c, endpointOf("eth0", 1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := n.step.Detach(ctx, ep, endpoint.DeleteConfig{}); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v or none", err, context.Canceled)
	}
	n.detach(t, ep) // and again, with time
	wantLinks(t, n.Namespace)
}

func TestStopFinishesDeletion(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	ep := n.attach(t, c, endpointOf("eth0", 1))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.step.Detach(ctx, ep, endpoint.DeleteConfig{})
	must(t, n.step.Stop(context.Background()))
	wantLinks(t, n.Namespace)
}

func TestRestore(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	ep := n.attach(t, c, endpointOf("eth0", 1))
	// gVisor takes the addresses: that is the container's.
	must(t, c.Netlink(t).AddrDel(testutil.LinkAt(ep.Container.Index), testutil.Address(hostPrefix(ep.Addresses.IPv4))))
	before := setup(t, c.Namespace)
	if replaced, err := n.step.Restore(t.Context(), ep); err != nil || len(replaced) > 0 {
		t.Errorf("replaced %v, error %v", replaced, err)
	}
	if after := setup(t, c.Namespace); !slices.Equal(before, after) {
		t.Errorf("the container was %q, and is %q", before, after)
	}
	n.detach(t, ep)
	if _, err := n.step.Restore(t.Context(), ep); !errors.Is(err, link.ErrNoLink) {
		t.Errorf("without a link: error %v, want %v", err, link.ErrNoLink)
	}
}

// An agent that dies while it deletes leaves the host end in the delete group, with which it would go at the next
// deletion.
func TestRestoreLinkBeingDeleted(t *testing.T) {
	n, c := newNode(t), newContainer(t)
	ep, other := n.attach(t, c, endpointOf("eth0", 1)), n.attach(t, c, endpointOf("eth1", 2))
	must(t, n.Netlink(t).LinkSetGroup(testutil.LinkAt(ep.Host.Index), deleteGroup))
	for _, want := range []int{1, 0} {
		replaced, err := n.step.Restore(t.Context(), ep)
		if err != nil || len(replaced) != want {
			t.Errorf("replaced %q, error %v, want %d", replaced, err, want)
		}
	}
	n.detach(t, other)
	wantLinks(t, n.Namespace, ep.Host.Name)
}

func TestSurvey(t *testing.T) {
	n, c, other := newNode(t), newContainer(t), testutil.NetNS(t)
	whole, gone, foreign := n.attach(t, c, endpointOf("eth0", 1)), n.attach(t, c, endpointOf("eth1", 2)), n.attach(t, c, endpointOf("eth2", 3))
	never := endpointOf("eth3", 4)
	n.detach(t, gone)
	foreign.Host.Index = addVeth(t, n.Namespace, "eth0", other, "peer")
	lost, err := n.step.Survey(t.Context(), []endpoint.Endpoint{whole, gone, foreign, never})
	must(t, err)
	want := map[endpoint.Attachment]error{
		gone.Spec.Attachment: link.ErrNoLink, foreign.Spec.Attachment: link.ErrForeign, never.Spec.Attachment: link.ErrNoLink,
	}
	for a, err := range want {
		if !errors.Is(lost[a], err) {
			t.Errorf("%s: %v, want %v", a, lost[a], err)
		}
	}
	if len(lost) != len(want) {
		t.Errorf("lost %v", lost)
	}
}

func TestPrune(t *testing.T) {
	n, c, other := newNode(t), newContainer(t), testutil.NetNS(t)
	live := n.attach(t, c, endpointOf("eth0", 1))
	var names []string
	for i := range byte(100) {
		nobodys := n.attach(t, c, endpointOf("net"+string([]byte{'0' + i/10, '0' + i%10}), 10+i))
		names = append(names, nobodys.Host.Name)
	}
	for _, name := range []string{"eth0", "portal0", "porABCDEFGHIJKL"} {
		addVeth(t, n.Namespace, name, other, name)
	}
	removed, err := n.step.Prune(t.Context(), []endpoint.Endpoint{live})
	if err != nil || len(removed) != len(names) {
		t.Errorf("removed %d links, error %v, want %d", len(removed), err, len(names))
	}
	wantLinks(t, n.Namespace, live.Host.Name, "eth0", "portal0", "porABCDEFGHIJKL")
	if again, err := n.step.Prune(t.Context(), []endpoint.Endpoint{live}); err != nil || len(again) > 0 {
		t.Errorf("the second time: removed %q, error %v", again, err)
	}
}
