package endpoints

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/node"
)

var one = node.IDOfName("one")

// pod is endpoint number i of a node, with a label.
func pod(i int, app string) published {
	return published{
		addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})}, pod: fmt.Sprint("pod-", i),
		labels: cluster.LabelSet{Namespace: "shop", Labels: map[string]string{"app": app}}, size: 300,
	}
}

func pods(n int) (all []published) {
	for i := range n {
		all = append(all, pod(i, fmt.Sprint("app-", i%2)))
	}
	return all
}

// written applies what plan returns, as the store does.
func written(stored map[int]cluster.EndpointGroup, changes []cluster.EndpointGroup) map[int]cluster.EndpointGroup {
	if stored = maps.Clone(stored); stored == nil {
		stored = map[int]cluster.EndpointGroup{}
	}
	for _, g := range changes {
		if len(g.Endpoints) == 0 {
			delete(stored, g.Slot)
			continue
		}
		g.Version += "+"
		stored[g.Slot] = g
	}
	return stored
}

// TestPlan writes no group more than a change needs.
func TestPlan(t *testing.T) {
	all := pods(20)
	stored := written(map[int]cluster.EndpointGroup{}, plan(one, cluster.GroupSize, nil, all))
	if len(stored) != 3 || len(stored[0].Endpoints) != 8 || len(stored[2].Endpoints) != 4 {
		t.Fatalf("%d groups, want 3 with 8, 8 and 4 endpoints", len(stored))
	}
	if sets := len(stored[0].LabelSets); sets != 2 {
		t.Errorf("%d label sets in a group, want those that there are, 2", sets)
	}
	if changes := plan(one, cluster.GroupSize, stored, all); len(changes) != 0 {
		t.Errorf("nothing has changed, and %d groups are written", len(changes))
	}
	all[10].labels.Labels = map[string]string{"app": "other"}
	if changes := plan(one, cluster.GroupSize, stored, all); len(changes) != 1 || changes[0].Slot != 1 || changes[0].Version != stored[1].Version {
		t.Errorf("other labels of one pod: %+v, want group 1", changes)
	}
	stored = written(stored, plan(one, cluster.GroupSize, stored, all))
	for _, gone := range []int{3, 17} {
		all[gone].addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 2, 0, byte(gone)})}
	}
	stored = written(stored, plan(one, cluster.GroupSize, stored, all)) // two others in their place
	if len(stored) != 3 || len(stored[0].Endpoints) != 8 {
		t.Errorf("%d groups, %d endpoints in the first: want the room that was left used first", len(stored), len(stored[0].Endpoints))
	}
	if changes := plan(one, cluster.GroupSize, stored, all[:8]); len(changes) != 2 || len(changes[0].Endpoints)+len(changes[1].Endpoints) != 0 {
		t.Errorf("most endpoints are gone: %+v, want two groups deleted", changes)
	}
}

// TestPlanStoredWithoutLabels writes nothing when a group is stored as it is to be: its JSON has no empty labels.
func TestPlanStoredWithoutLabels(t *testing.T) {
	p := published{addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, labels: cluster.LabelSet{Namespace: "shop", Labels: map[string]string{}}}
	text, err := json.Marshal(plan(one, cluster.GroupSize, nil, []published{p})[0])
	var stored cluster.EndpointGroup
	if err == nil {
		err = json.Unmarshal(text, &stored)
	}
	if err != nil {
		t.Fatal(err)
	}
	if changes := plan(one, cluster.GroupSize, map[int]cluster.EndpointGroup{0: stored}, []published{p}); len(changes) > 0 {
		t.Errorf("the group %+v is written again: %+v", stored, changes)
	}
}

// TestPlanLargeLabels divides endpoints over more groups when their labels are large.
func TestPlanLargeLabels(t *testing.T) {
	labels := map[string]string{}
	for i := range 120 {
		labels[fmt.Sprintf("%060d", i)] = strings.Repeat("x", 63)
	}
	ep := endpoint.Endpoint{State: endpoint.Ready, Addresses: endpoint.Addresses{IPv4: netip.MustParseAddr("10.0.0.1")}}
	var err error
	if ep.Metadata, err = (endpoint.Metadata{Labels: labels}).Encode(); err != nil {
		t.Fatal(err)
	}
	var all []published
	for i := range 10 {
		ep.Addresses.IPv4 = ep.Addresses.IPv4.Next()
		p, ok, err := publishedOf(ep, false)
		if !ok || err != nil {
			t.Fatalf("it is not published: %v", err)
		}
		p.labels.Namespace = fmt.Sprint(i) // so that nothing is shared
		all = append(all, p)
	}
	changes := plan(one, cluster.GroupSize, nil, all)
	n := 0
	for _, g := range changes {
		text, err := json.Marshal(g)
		if err != nil || len(text) > 64<<10 {
			t.Errorf("group %d has %d bytes, more than a record can have (%v)", g.Slot, len(text), err)
		}
		n += len(g.Endpoints)
	}
	if n != len(all) {
		t.Errorf("%d endpoints are published, want %d", n, len(all))
	}
	for i := range 120 {
		labels[fmt.Sprintf("more/%055d", i)] = strings.Repeat("x", 63)
	}
	ep.Metadata, _ = (endpoint.Metadata{Labels: labels}).Encode()
	if p, ok, err := publishedOf(ep, false); ok || err != nil {
		t.Errorf("%d bytes of labels are published, which no record can have (%v)", p.size, err)
	}
}

// TestNotPublished are endpoints that other nodes learn of otherwise, or not at all.
func TestNotPublished(t *testing.T) {
	ep := endpoint.Endpoint{State: endpoint.Ready, Addresses: endpoint.Addresses{IPv4: netip.MustParseAddr("10.0.0.1")}}
	if _, ok, _ := publishedOf(ep, false); !ok {
		t.Error("a pod is not published")
	}
	for name, change := range map[string]func(*endpoint.Endpoint){
		"without addresses":   func(ep *endpoint.Endpoint) { ep.Addresses = endpoint.Addresses{} },
		"going down":          func(ep *endpoint.Endpoint) { ep.State = endpoint.Disconnecting },
		"the health endpoint": func(ep *endpoint.Endpoint) { ep.Spec.Kind = endpoint.KindHealth },
	} {
		ep := ep
		change(&ep)
		if _, ok, _ := publishedOf(ep, false); ok {
			t.Errorf("%s: it is published", name)
		}
	}
}

// TestPlanMoves: an endpoint that moves to another group is in one after each write.
func TestPlanMoves(t *testing.T) {
	sixteen := written(nil, plan(one, 16, nil, pods(32))) // of an earlier version
	large := pods(8)
	for i := range large {
		large[i].size = maxGroupBytes / 8
	}
	stored := written(nil, plan(one, cluster.GroupSize, nil, large))
	large[0].size, large[0].labels.Labels = maxGroupBytes/2, map[string]string{"app": "large"}
	for name, test := range map[string]struct {
		stored map[int]cluster.EndpointGroup
		all    []published
	}{"smaller groups": {sixteen, pods(32)}, "larger labels": {stored, large}} {
		changes := plan(one, cluster.GroupSize, test.stored, test.all)
		if len(changes) < 2 {
			t.Errorf("%s: %d groups are written, want several", name, len(changes))
		}
		for i := range changes {
			found := map[string]bool{}
			for _, g := range written(test.stored, changes[:i+1]) {
				for _, ep := range g.Endpoints {
					found[ep.Pod] = true
				}
			}
			if len(found) < len(test.all) {
				t.Errorf("%s: after %d of %d writes %d of %d endpoints are in a group", name, i+1, len(changes), len(found), len(test.all))
			}
		}
	}
}
