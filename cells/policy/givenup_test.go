package policy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/supervisor"
)

// TestGiveUp starts with policies on the disk that do not fit together: the largest one denies, all others are in
// force, and it comes back when another one goes.
func TestGiveUp(t *testing.T) {
	dir := t.TempDir()
	web, client, other := pod(1, "web"), pod(2, "client"), pod(3, "other")
	first := servingNode(t, dir)
	first.put(t, toWebFrom("client"))
	second := strings.NewReplacer("name: web", "name: other", "app: web", "app: other").Replace(toWebFrom("client"))
	first.put(t, second)
	var large strings.Builder
	large.WriteString("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: large}\nspec:\n  podSelector: {matchLabels: {app: client}}\n  ingress:\n")
	for i := range 50 {
		fmt.Fprintf(&large, "  - ports: [{port: %d}]\n", 2*i+1)
	}
	first.put(t, strings.Replace(large.String(), "  ingress:\n", "  ingress:\n  - ports: [{port: 80}]\n", 1))
	first.stop(t)

	n := startNode(t, dir, newFakeKernel())
	room := 20
	n.kernel.fits = func(e *engine.Engine) error {
		rows := 0
		for _, key := range n.queue.view.localEndpoints() {
			table, _ := e.Table(key, model.Ingress)
			rows += len(table.Any())
		}
		if rows > room {
			return fmt.Errorf("%w: %d rows", ErrNoRoom, rows)
		}
		return nil
	}
	for _, ep := range []endpoint.Endpoint{web, client, other} {
		if _, err := n.step.Restore(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
	}
	n.prune(t, web, client, other)
	n.wants(t, client, web, true, "of a policy that fits")
	n.wants(t, other, web, false, "of a policy that fits")
	n.wants(t, web, client, false, "of the policy that does not fit")
	if c := newReporter(n.policies).Condition(); c.State != supervisor.Degraded || !strings.Contains(c.Reason, "NetworkPolicy default/large") {
		t.Errorf("the cell is %+v, want it degraded by the policy", c)
	}
	_, answer := call(n)("GET", "/v1/policy", "")
	if !strings.Contains(answer, "not in force as it is") {
		t.Errorf("policies %s, want one that says that it is not in force", answer)
	}
	n.attach(t, pod(4, "more"))

	room = 1000
	if err := n.policies.Delete(t.Context(), model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "default", Name: "other"}); err != nil {
		t.Fatal(err)
	}
	n.wants(t, web, client, true, "when there is room")
	if c := newReporter(n.policies).Condition(); c.State != supervisor.OK {
		t.Errorf("the cell is %+v, want it healthy", c)
	}
}

func TestDenying(t *testing.T) {
	rules := model.Rules{{Name: "a", Action: model.Accept}, {Name: "b", Action: model.Deny, Ports: []model.Port{{First: 1, Last: 1}}}, {Name: "c", Action: model.Pass}}
	accepts := rules[:1]
	p := denying(model.Policy{Egress: &rules, Ingress: &accepts})
	if len(*p.Egress) != 1 || (*p.Egress)[0].Action != model.Deny || !(*p.Egress)[0].Peers[0].Any || len((*p.Egress)[0].Ports) != 0 {
		t.Errorf("egress %+v, want one rule that denies everything", *p.Egress)
	}
	if p.Ingress == nil || len(*p.Ingress) != 0 {
		t.Errorf("ingress %+v, want no rule", p.Ingress)
	}
	if len(rules) != 3 {
		t.Error("the policy's own rules were changed")
	}
}

// TestGiveUpNames: the addresses of names are in force again when the policy is that selects them.
func TestGiveUpNames(t *testing.T) {
	n := servingNode(t, "")
	web := pod(1, "web")
	n.attach(t, web)
	n.put(t, toWebFrom("client"))
	other := strings.Replace(webTo("small", "b.example"), "app: web", "app: other", 1)
	n.replace(t)
	set := func(object []byte) {
		t.Helper()
		if err := n.policies.SetObject(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		n.flush(t)
	}
	set(jsonOf(t, other))
	full := false
	n.kernel.fits = func(e *engine.Engine) error {
		if v := e.Evaluate(web.Addresses.IPv4, netip.MustParseAddr("198.51.100.1"), model.TCP, 80); full && v.Egress.Reason == engine.ReasonRule {
			return ErrNoRoom // the policy is there
		}
		return nil
	}
	full = true
	set(jsonOf(t, strings.Replace(webTo("names", "*.example"), "egress: [", "egress: [{toCIDR: [198.51.100.0/24]}, ", 1)))
	if n.policies.view.gaveUp(namesID) == nil {
		t.Fatal("the policy was not given up")
	}
	if err := n.learn(t, web, "a.example", "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, web, "given up", nil, "192.0.2.1")
	full = false
	if err := n.policies.RemoveObject(t.Context(), model.PolicyID{Kind: model.KindCiliumNetworkPolicy, Namespace: "default", Name: "small"}); err != nil {
		t.Fatal(err)
	}
	n.reaches(t, web, "in force again", []string{"192.0.2.1"}, "192.0.2.1")
}
