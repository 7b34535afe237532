package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

// overlapping is a policy of so many rules, whose blocks and ports are all different and which each match nearly every
// address.
func overlapping(rules int) string {
	var text strings.Builder
	text.WriteString("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: large, namespace: default}\nspec:\n  podSelector: {}\n  ingress:\n")
	for i := range rules {
		fmt.Fprintf(&text, "  - {from: [{ipBlock: {cidr: 0.0.0.0/0, except: [20.%d.%d.0/24]}}], ports: [{port: %d}]}\n", i/256, i%256, i+1)
	}
	return text.String()
}

// TestPutTooLarge puts policies that would take gigabytes: they are refused within a time, the previous ones stay in
// force, and changes go on.
func TestPutTooLarge(t *testing.T) {
	n := servingNode(t, t.TempDir())
	web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "other")
	table := endpointtest.NewEndpoints()
	n.attach(t, web)
	n.attach(t, client)
	n.attach(t, other)
	wants := func(when string, fromClient, fromOther bool) {
		t.Helper()
		n.wants(t, client, web, fromClient, when)
		n.wants(t, other, web, fromOther, when)
	}
	n.put(t, toWebFrom("client"))
	wants("before", true, false)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { // while an engine that is of no use is there
		for i := uint32(0); ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
				n.queue.view.Evaluate(netip.AddrFrom4([4]byte{20, byte(i >> 8), byte(i), 1}), web.Addresses.IPv4, model.TCP, uint16(i))
			}
		}
	})
	defer asking.Wait()
	defer close(stop)
	for name, text := range map[string]string{"rules with ports": overlapping(1000), "blocks": overlapping(2500)} {
		if _, _, err := n.policies.Put(t.Context(), []byte(text)); fault.KindOf(err) != fault.Exhausted {
			t.Errorf("put: %s: error %v, want one that says that it is too much", name, err)
		}
		if err := n.queue.view.Applied().Err; err != nil {
			t.Errorf("%s: what was before is not in force: %v", name, err)
		}
		wants("after "+name, true, false)
		if name != "blocks" {
			continue
		}
		if _, err := n.policies.Diff(t.Context(), table, flowsTo(web, client.Addresses.IPv4), []byte(text), nil); fault.KindOf(err) != fault.Exhausted {
			t.Errorf("diff: %s: error %v, want one that says that it is too much", name, err)
		}
	}
	if names := n.names(); !slices.Equal(names, []string{"NetworkPolicy default/web"}) {
		t.Errorf("policies %q, want the one that was before", names)
	}
	n.put(t, toWebFrom("other"))
	wants("after another change", false, true)
}

// TestPodsThatComeAndGo: each matches other rules of a large policy, and together they would be too much. None is
// refused because of earlier pods.
func TestPodsThatComeAndGo(t *testing.T) {
	n := servingNode(t, t.TempDir())
	n.attach(t, pod(1, "web"))
	var text strings.Builder
	text.WriteString("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: large, namespace: default}\nspec:\n  podSelector: {matchLabels: {app: web}}\n  ingress:\n")
	const pods, rules = 20, 3000
	for i := range rules {
		fmt.Fprintf(&text, "  - {from: [{podSelector: {matchExpressions: [{key: app, operator: %s, values: [client-%d]}]}}], ports: [{port: %d}]}\n", []string{"In", "NotIn"}[min(i/pods, 1)], i, i+1)
	}
	n.put(t, text.String())
	for i := range pods {
		client := pod(2, fmt.Sprintf("client-%d", i))
		n.attach(t, client)
		if err := n.step.Detach(t.Context(), client, endpoint.DeleteConfig{}); err != nil {
			t.Fatal(err)
		}
	}
}
