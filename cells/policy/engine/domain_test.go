package engine_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

var (
	exampleName = model.DNSRule{Name: "www.example"}
	everyName   = model.DNSRule{Pattern: "*"}
	outside     = netip.MustParseAddr("192.0.2.7")
)

func toDomain(name, subject string, rules ...model.Rule) model.Policy {
	p := networkPolicy(name, subject)
	p.ID.Kind, p.Ingress, p.Egress = model.KindCiliumNetworkPolicy, nil, (*model.Rules)(&rules)
	return p
}

func domainPeer(rule model.DNSRule, ports []model.Port) model.Rule {
	return model.Rule{Peers: []model.Peer{{Domain: rule}}, Ports: ports}
}

func domainAdd(rule model.DNSRule, addresses ...netip.Addr) engine.Update {
	return engine.Update{Domains: []engine.DomainChange{{Rule: rule, Add: addresses}}}
}

// TestDomainPeers: an address of a name is allowed as long as the name has it, and no endpoint does.
func TestDomainPeers(t *testing.T) {
	block := model.Rule{Peers: []model.Peer{{Block: &model.Block{CIDR: netip.MustParsePrefix("192.0.2.0/24"), OutsideOnly: true}}}, Ports: tcp(22)}
	e := shop(toDomain("names", "web", domainPeer(exampleName, tcp(443)), domainPeer(everyName, tcp(80)), block))
	allowed := func() (ports []uint16) {
		for _, port := range []uint16{22, 80, 443} {
			if e.Evaluate(addr(1), outside, model.TCP, port).Allowed {
				ports = append(ports, port)
			}
		}
		return ports
	}
	for _, step := range []struct {
		name   string
		update engine.Update
		want   []uint16
	}{
		{"no name has it", engine.Update{}, []uint16{22}},
		{"one rule's names have it", domainAdd(exampleName, outside), []uint16{22, 443}},
		{"two rules' names have it", domainAdd(everyName, outside), []uint16{22, 80, 443}},
		{"a pod has it", engine.Update{SetEndpoints: []model.Endpoint{{Key: "remote/pod", Kind: model.Pod, Addresses: []netip.Addr{outside}}}}, nil},
		{"no pod has it any more", engine.Update{RemoveEndpoints: []string{"remote/pod"}}, []uint16{22, 80, 443}},
		{"it is in a range of pods", engine.Update{SetUnmanaged: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28")}}, nil},
		{"the range is no pods' any more", engine.Update{RemoveUnmanaged: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28")}}, []uint16{22, 80, 443}},
		{"the first rule's names have lost it", engine.Update{Domains: []engine.DomainChange{{Rule: exampleName, Remove: []netip.Addr{outside}}}}, []uint16{22, 80}},
		{"a rule that no policy has", domainAdd(model.DNSRule{Name: "other.example"}, outside), []uint16{22, 80}},
	} {
		e.Apply(step.update)
		if got := allowed(); !slices.Equal(got, step.want) {
			t.Errorf("%s: ports %v are allowed, want %v", step.name, got, step.want)
		}
	}
	if got, want := e.DomainsAt(outside), []model.DNSRule{everyName}; !slices.Equal(got, want) {
		t.Errorf("the address is selected by %v, want %v", got, want)
	}
}

// TestDomainWithoutPolicy: the addresses of a rule go with the last policy that has it.
func TestDomainWithoutPolicy(t *testing.T) {
	names := toDomain("names", "web", domainPeer(exampleName, nil))
	e := shop(names)
	before := len(slices.Collect(prefixesOf(e)))
	e.Apply(domainAdd(exampleName, outside))
	e.Apply(engine.Update{RemovePolicies: []model.PolicyID{names.ID}})
	if after := len(slices.Collect(prefixesOf(e))); after != before {
		t.Errorf("%d ranges, want the %d of before", after, before)
	}
	e.Apply(engine.Update{SetPolicies: []model.Policy{names}})
	if e.Evaluate(addr(1), outside, model.TCP, 80).Allowed {
		t.Error("a new policy begins with addresses that its rule had once")
	}
}

func prefixesOf(e *engine.Engine) func(func(netip.Prefix) bool) {
	return func(yield func(netip.Prefix) bool) {
		for cidr := range e.Prefixes() {
			if !yield(cidr) {
				return
			}
		}
	}
}

// TestDomainChangesLittle: an address of a name like many others makes neither classes nor rows.
func TestDomainChangesLittle(t *testing.T) {
	e := shop(toDomain("names", "web", domainPeer(exampleName, nil)))
	e.Apply(domainAdd(exampleName, outside))
	change := e.Apply(domainAdd(exampleName, outside.Next()))
	if len(change.Tables)+len(change.Addresses)+len(change.Endpoints) > 0 || len(change.Prefixes) != 1 {
		t.Errorf("%+v, want one range alone", change)
	}
}

// TestDomainReports: a policy with names that cannot be learned has a report.
func TestDomainReports(t *testing.T) {
	const names = "[CiliumNetworkPolicy shop/names]: egress rule 0: names have the addresses that answers to DNS queries give them, and "
	dns := func(name, subject string) model.Policy {
		return toDomain(name, subject, model.Rule{Peers: []model.Peer{{Any: true}}, Layer7: &model.Layer7{DNS: []model.DNSRule{everyName}}})
	}
	audited := dns("dns", "web")
	audited.Audit = true
	for _, row := range []struct {
		name     string
		policies []model.Policy
		want     []string
	}{
		{"no rule for DNS", []model.Policy{toDomain("names", "web", domainPeer(exampleName, nil))}, []string{names + "no rule for DNS selects shop/web"}},
		{"in audit", []model.Policy{toDomain("names", "web", domainPeer(exampleName, nil)), audited}, []string{names + "no rule for DNS selects shop/web"}},
		{"for another pod", []model.Policy{toDomain("names", "web", domainPeer(exampleName, nil)), dns("dns", "db")}, []string{names + "no rule for DNS selects shop/web"}},
		{"for the pod", []model.Policy{toDomain("names", "web", domainPeer(exampleName, nil)), dns("dns", "web")}, nil},
		{"no pod", []model.Policy{toDomain("names", "nobody", domainPeer(exampleName, nil))}, []string{names + "there is no rule for DNS"}},
		{"no pod, and a rule for DNS", []model.Policy{toDomain("names", "nobody", domainPeer(exampleName, nil)), dns("dns", "db")}, nil},
	} {
		var got []string
		for _, r := range shop(row.policies...).Reports() {
			got = append(got, fmt.Sprint(r.Policies, ": ", r.Text))
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: %s", row.name, diff)
		}
	}
}
