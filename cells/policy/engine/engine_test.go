package engine_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

func addr(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }

func label(key, value string) model.Requirement {
	return model.Requirement{Key: key, Operator: model.In, Values: []string{value}}
}

// pod is a local pod of namespace shop, with its name as the label app.
func pod(name string, n int) model.Endpoint {
	return model.Endpoint{
		Key: "shop/" + name, Kind: model.Pod, Local: true, Namespace: "shop", NamespaceLabels: map[string]string{"name": "shop"},
		Labels: map[string]string{"app": name}, Addresses: []netip.Addr{addr(n)},
		NamedPorts: []model.NamedPort{{Name: "http", Protocol: model.TCP, Number: 8000 + uint16(n)}},
	}
}

func app(name string) model.Peer {
	return model.Peer{Pods: &model.Pods{Namespace: "shop", Labels: model.Selector{label("app", name)}}}
}

func networkPolicy(name, subject string, ingress ...model.Rule) model.Policy {
	rules := model.Rules(ingress)
	return model.Policy{
		ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: name}, Tier: model.TierNetworkPolicy,
		Subject: model.Pods{Namespace: "shop", Labels: model.Selector{label("app", subject)}}, Ingress: &rules,
	}
}

func clusterPolicy(name string, tier model.Tier, priority int, ingress ...model.Rule) model.Policy {
	rules := model.Rules(ingress)
	return model.Policy{ID: model.PolicyID{Kind: model.KindClusterNetworkPolicy, Name: name}, Tier: tier, Priority: priority, Ingress: &rules}
}

func tcp(port uint16) []model.Port {
	return []model.Port{{Protocol: model.TCP, First: port, Last: port}}
}

func shop(policies ...model.Policy) *engine.Engine {
	e := engine.New(engine.Config{})
	e.Apply(engine.Update{
		SetPolicies: policies,
		SetEndpoints: []model.Endpoint{
			pod("web", 1), pod("db", 2), pod("other", 3), {Key: "node", Kind: model.Host, Addresses: []netip.Addr{addr(4)}},
		},
	})
	return e
}

func TestEvaluateReasons(t *testing.T) {
	web, db, other, host, world := addr(1), addr(2), addr(3), addr(4), netip.MustParseAddr("192.0.2.1")
	onlyWeb := networkPolicy("only-web", "db", model.Rule{Peers: []model.Peer{app("web")}, Ports: tcp(80)})
	pings := networkPolicy("pings", "db", model.Rule{Peers: []model.Peer{app("web")}, Ports: []model.Port{{Protocol: model.ICMP, First: 8, Last: 8}}})
	for _, row := range []struct {
		name     string
		policies []model.Policy
		from, to netip.Addr
		protocol model.Protocol
		port     uint16
		want     string
	}{
		{"no policy", nil, web, db, model.TCP, 80, "allowed: no policy selects the pod"},
		{"accepted", []model.Policy{onlyWeb}, web, db, model.TCP, 80, "allowed: rule: NetworkPolicy shop/only-web, ingress rule 0"},
		{"other port", []model.Policy{onlyWeb}, web, db, model.TCP, 81, "denied: default deny: NetworkPolicy shop/only-web, ingress"},
		{"ICMP and a rule with ports", []model.Policy{onlyWeb}, web, db, model.ICMP, 0, "denied: default deny: NetworkPolicy shop/only-web, ingress"},
		{"ICMP and a rule for echo requests", []model.Policy{pings}, web, db, model.ICMP, 0, "allowed: rule: NetworkPolicy shop/pings, ingress rule 0"},
		{"ICMPv6 and a rule for those of ICMP", []model.Policy{pings}, web, db, model.ICMPv6, 0, "denied: default deny: NetworkPolicy shop/pings, ingress"},
		{"other pod", []model.Policy{onlyWeb}, other, db, model.TCP, 80, "denied: default deny: NetworkPolicy shop/only-web, ingress"},
		{"world", []model.Policy{onlyWeb}, world, db, model.TCP, 80, "denied: default deny: NetworkPolicy shop/only-web, ingress"},
		{"this node", []model.Policy{onlyWeb}, host, db, model.TCP, 22, "allowed: this node"},
		{"itself", []model.Policy{onlyWeb}, db, db, model.TCP, 22, "allowed: the pod itself"},
		{"to the world", []model.Policy{onlyWeb}, db, world, model.TCP, 22, "allowed: not a pod"},
		{"admin denies what a NetworkPolicy accepts", []model.Policy{onlyWeb, clusterPolicy("no", model.TierAdmin, 5, model.Rule{Name: "web", Action: model.Deny, Peers: []model.Peer{app("web")}})},
			web, db, model.TCP, 80, "denied: rule: ClusterNetworkPolicy no, ingress rule 0 (web)"},
		{"lower priority first", []model.Policy{clusterPolicy("no", model.TierAdmin, 5, model.Rule{Action: model.Deny, Peers: []model.Peer{app("web")}}), clusterPolicy("yes", model.TierAdmin, 4, model.Rule{Peers: []model.Peer{app("web")}})},
			web, db, model.TCP, 80, "allowed: rule: ClusterNetworkPolicy yes, ingress rule 0"},
		{"passed, then default deny", []model.Policy{onlyWeb, clusterPolicy("pass", model.TierAdmin, 0, model.Rule{Action: model.Pass, Peers: []model.Peer{app("other")}}, model.Rule{Peers: []model.Peer{app("other")}})},
			other, db, model.TCP, 80, "denied: default deny: NetworkPolicy shop/only-web, ingress, passed on by ClusterNetworkPolicy pass, ingress rule 0"},
		{"baseline after NetworkPolicies", []model.Policy{onlyWeb, clusterPolicy("base", model.TierBaseline, 0, model.Rule{Action: model.Deny, Peers: []model.Peer{app("web")}})},
			web, db, model.TCP, 80, "allowed: rule: NetworkPolicy shop/only-web, ingress rule 0"},
		{"baseline without NetworkPolicies", []model.Policy{clusterPolicy("base", model.TierBaseline, 0, model.Rule{Action: model.Deny, Peers: []model.Peer{app("web")}})},
			web, db, model.TCP, 80, "denied: rule: ClusterNetworkPolicy base, ingress rule 0"},
		{"no rule", []model.Policy{clusterPolicy("base", model.TierBaseline, 0, model.Rule{Action: model.Deny, Peers: []model.Peer{app("web")}})},
			other, db, model.TCP, 80, "allowed: no rule matches"},
		{"named port of the destination", []model.Policy{networkPolicy("named", "db", model.Rule{Peers: []model.Peer{{Any: true}}, Ports: []model.Port{{Name: "http"}}})},
			world, db, model.TCP, 8002, "allowed: rule: NetworkPolicy shop/named, ingress rule 0"},
		{"a pod's address in a block", []model.Policy{networkPolicy("block", "db", model.Rule{Peers: []model.Peer{{Block: &model.Block{CIDR: netip.MustParsePrefix("10.0.0.0/30")}}}})},
			web, db, model.TCP, 1, "allowed: rule: NetworkPolicy shop/block, ingress rule 0"},
		{"domain name", []model.Policy{networkPolicy("domain", "db", model.Rule{Peers: []model.Peer{{Domain: model.DNSRule{Name: "example.org"}}}})},
			world, db, model.TCP, 1, "denied: default deny: NetworkPolicy shop/domain, ingress"},
	} {
		t.Run(row.name, func(t *testing.T) {
			if got := shop(row.policies...).Evaluate(row.from, row.to, row.protocol, row.port).Ingress.String(); got != row.want {
				t.Errorf("%s, want %s", got, row.want)
			}
		})
	}
}

func TestEvaluateHostPolicy(t *testing.T) {
	e := engine.New(engine.Config{HostPolicy: true})
	e.Apply(engine.Update{
		SetPolicies:  []model.Policy{networkPolicy("none", "db")},
		SetEndpoints: []model.Endpoint{pod("db", 2), {Key: "node", Kind: model.Host, Addresses: []netip.Addr{addr(4)}}},
	})
	if e.Evaluate(addr(4), addr(2), model.TCP, 80).Allowed {
		t.Error("the node reaches a pod that accepts nothing, with policy for the node")
	}
}

func TestRowsOfOverlappingPorts(t *testing.T) {
	e := shop(clusterPolicy("ports", model.TierAdmin, 0,
		model.Rule{Peers: []model.Peer{app("web")}, Ports: []model.Port{{Protocol: model.TCP, First: 80, Last: 83}}},
		model.Rule{Action: model.Deny, Peers: []model.Peer{app("web")}, Ports: []model.Port{{Protocol: model.TCP, First: 82, Last: 82}, {Protocol: model.TCP, First: 64, Last: 95}}},
	))
	table, ok := e.Table("shop/db", model.Ingress)
	if !ok {
		t.Fatal("a local pod has no table")
	}
	web := e.End(addr(1)).Class
	var got []string
	for class, rows := range table.Rows() {
		for _, r := range rows {
			if class == web {
				got = append(got, fmt.Sprintf("%s %d/%d %v", r.Protocol, r.Port, r.Bits, r.Decision.Allowed))
			}
		}
	}
	want := []string{"0 0/0 true", "TCP 64/12 false", "TCP 80/14 true", "TCP 84/14 false", "TCP 88/13 false"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestClassKeepsNumber(t *testing.T) {
	e := shop()
	same := func(x, y int) bool {
		a := e.End(addr(x)).Class
		b := e.End(addr(y)).Class
		return a == b
	}
	if !same(1, 2) || !same(2, 3) {
		t.Fatal("pods that no rule tells apart have several classes")
	}
	before := e.End(addr(3)).Class
	change := e.Apply(engine.Update{SetPolicies: []model.Policy{networkPolicy("a", "db", model.Rule{Peers: []model.Peer{app("web")}})}})
	if same(1, 2) || !same(2, 3) {
		t.Error("the pod that a rule names has not got a class alone")
	}
	if after := e.End(addr(3)).Class; after != before {
		t.Errorf("class of the others is %d, was %d", after, before)
	}
	if diff := cmp.Diff([]engine.AddressChange{{Address: addr(1), Before: before}}, change.Addresses, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("addresses that changed: %s", diff)
	}
	if diff := cmp.Diff([]string{"shop/db"}, change.Endpoints); diff != "" {
		t.Errorf("endpoints that changed: %s", diff)
	}
	everybody := networkPolicy("b", "other", model.Rule{Peers: []model.Peer{{Pods: &model.Pods{}}}})
	if change := e.Apply(engine.Update{SetPolicies: []model.Policy{everybody}}); len(change.Addresses) != 0 {
		t.Errorf("%v changed by a selector for all pods", change.Addresses)
	}
}

func TestApplyTwiceChangesNothing(t *testing.T) {
	policy := networkPolicy("a", "db", model.Rule{Peers: []model.Peer{app("web")}})
	e := shop(policy)
	change := e.Apply(engine.Update{SetPolicies: []model.Policy{policy}, SetEndpoints: []model.Endpoint{pod("web", 1), pod("db", 2)}})
	if diff := cmp.Diff(engine.Change{}, change, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
}

func TestFixedClasses(t *testing.T) {
	e := shop()
	if end := e.End(addr(4)); end.Class != engine.FixedClass(model.Host) || end.Endpoint == "" {
		t.Errorf("the node has class %d, and endpoint %q has it", end.Class, end.Endpoint)
	}
	if end := e.End(netip.MustParseAddr("2001:db8::1")); end.Class != engine.FixedClass(model.World) || end.Endpoint != "" {
		t.Errorf("an unknown address has class %d, and endpoint %q has it", end.Class, end.Endpoint)
	}
}

func TestReports(t *testing.T) {
	domain := clusterPolicy("c", model.TierAdmin, 9)
	domain.Egress = &model.Rules{{Peers: []model.Peer{{Domain: model.DNSRule{Pattern: "**.example.org"}}}}}
	e := shop(clusterPolicy("b", model.TierAdmin, 7), clusterPolicy("a", model.TierAdmin, 7), clusterPolicy("d", model.TierBaseline, 7), domain,
		networkPolicy("x", "db"), networkPolicy("y", "db"))
	var got []string
	for _, r := range e.Reports() {
		got = append(got, fmt.Sprint(r.Policies, ": ", r.Text))
	}
	want := []string{
		"[ClusterNetworkPolicy a ClusterNetworkPolicy b]: equal priority 7 in tier admin: evaluated in the order of kind and name",
		"[ClusterNetworkPolicy c]: egress rule 0: names have the addresses that answers to DNS queries give them, and no rule for DNS selects shop/db and 2 more",
	}
	if !slices.Equal(got, want) {
		t.Error(cmp.Diff(want, got))
	}
}
