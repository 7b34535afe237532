package engine_test

import (
	"net/netip"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// auditCase is a way to have in audit what denies a pod everything.
type auditCase struct {
	name   string
	config engine.Config
	set    func(audit bool) engine.Update // nil: the node is, which no update changes
}

func auditCases() []auditCase {
	policy := func(audit bool) model.Policy {
		return model.Policy{
			ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "deny"}, Tier: model.TierNetworkPolicy,
			Subject: model.Pods{Namespace: "shop"}, Egress: &model.Rules{}, Ingress: &model.Rules{}, Audit: audit,
		}
	}
	endpoint := func(audit bool) model.Endpoint {
		return model.Endpoint{
			Key: "shop/web", Kind: model.Pod, Local: true, Namespace: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}, Audit: audit,
		}
	}
	update := func(policyAudit, endpointAudit bool) engine.Update {
		return engine.Update{SetPolicies: []model.Policy{policy(policyAudit)}, SetEndpoints: []model.Endpoint{endpoint(endpointAudit)}}
	}
	return []auditCase{
		{"policy", engine.Config{}, func(audit bool) engine.Update { return update(audit, false) }},
		{"endpoint", engine.Config{}, func(audit bool) engine.Update { return update(false, audit) }},
		{"node", engine.Config{Audit: true}, func(bool) engine.Update { return update(false, false) }},
	}
}

// TestAudit lets pass what is denied when audit ends, and says so. A datapath hears of the tables in force alone.
func TestAudit(t *testing.T) {
	web, outside := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.1")
	for _, c := range auditCases() {
		e := engine.New(c.config)
		change := e.Apply(c.set(true))
		if len(change.Tables) != 2 {
			t.Errorf("%s: tables %+v, want one in each direction", c.name, change.Tables)
		}
		for _, direction := range []model.Direction{model.Egress, model.Ingress} {
			if table, ok := e.Table("shop/web", direction); !ok || table.Restricts() || len(table.Any()) != 1 || !table.Any()[0].Decision.Allowed {
				t.Errorf("%s: the %s table in force restricts: %t", c.name, direction, table.Restricts())
			}
		}
		d := e.Evaluate(outside, web, model.TCP, 80)
		if !d.Allowed || d.AuditEgress != nil || d.AuditIngress == nil || d.AuditIngress.Allowed || d.AuditIngress.Reason != engine.ReasonDefaultDeny {
			t.Errorf("%s: %+v, want it allowed, and denied without audit", c.name, d)
		}
		if !e.InAudit("shop/web") || e.InAudit("shop/none") {
			t.Errorf("%s: the pod is not in audit, or one that is not there is", c.name)
		}
		if c.config.Audit {
			continue
		}
		if change = e.Apply(c.set(false)); len(change.Endpoints) != 1 || len(change.Addresses)+len(change.Prefixes) != 0 {
			t.Errorf("%s: the end of audit changes %+v, want the tables of the pod alone", c.name, change)
		}
		if d = e.Evaluate(outside, web, model.TCP, 80); d.Allowed || d.AuditIngress != nil || e.InAudit("shop/web") {
			t.Errorf("%s: after audit: %+v, want it denied", c.name, d)
		}
	}
}

// TestAuditOfOnePolicy leaves others in force.
func TestAuditOfOnePolicy(t *testing.T) {
	web, outside := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("192.0.2.1")
	policy := func(name string, port uint16, audit bool) model.Policy {
		return model.Policy{
			ID: model.PolicyID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: name}, Tier: model.TierNetworkPolicy, Subject: model.Pods{Namespace: "shop"}, Audit: audit,
			Ingress: &model.Rules{{Action: model.Accept, Peers: []model.Peer{{Any: true}}, Ports: []model.Port{{Protocol: model.TCP, First: port, Last: port}}}},
		}
	}
	e := engine.New(engine.Config{})
	e.Apply(engine.Update{
		SetPolicies:  []model.Policy{policy("http", 80, false), policy("https", 443, true)},
		SetEndpoints: []model.Endpoint{{Key: "shop/web", Kind: model.Pod, Local: true, Namespace: "shop", Addresses: []netip.Addr{web}}},
	})
	for port, want := range map[uint16][2]bool{80: {true, true}, 443: {false, true}, 22: {false, false}} {
		d := e.Evaluate(outside, web, model.TCP, port)
		would := d.Ingress
		if d.AuditIngress != nil {
			would = *d.AuditIngress
		}
		if d.Allowed != want[0] || would.Allowed != want[1] {
			t.Errorf("port %d: %+v, want allowed %t, and %t without audit", port, d, want[0], want[1])
		}
	}
}
