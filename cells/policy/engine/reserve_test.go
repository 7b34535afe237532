package engine_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// classFor returns the class of an address in the blocks of class now, when a name that the rules match has it; 0: there is none.
func classFor(e *engine.Engine, now engine.ClassID, matching ...model.DNSRule) engine.ClassID {
	rules, classes := e.NameClasses()
	i := slices.IndexFunc(classes, func(c engine.NameClass) bool { return c.Class == now })
	if i < 0 {
		return 0
	}
	wanted := slices.Clone(classes[i].Rules)
	for _, rule := range matching {
		wanted = append(wanted, slices.Index(rules, rule))
	}
	slices.Sort(wanted)
	wanted = slices.Compact(wanted)
	for _, c := range classes {
		if c.Blocks == classes[i].Blocks && slices.Equal(c.Rules, wanted) {
			return c.Class
		}
	}
	return 0
}

// TestReservedClasses: a class with its rows is there before the first address of a name, and the address gets it.
func TestReservedClasses(t *testing.T) {
	block := model.Rule{Peers: []model.Peer{{Block: &model.Block{CIDR: netip.MustParsePrefix("192.0.2.0/24")}}}, Ports: tcp(22)}
	names := toDomain("names", "web", domainPeer(exampleName, tcp(443)), domainPeer(everyName, tcp(80)), block)
	e := shop(names)
	inBlock := e.End(outside).Class
	wanted := map[string]engine.ClassID{
		"in no block":       classFor(e, engine.FixedClass(model.World), exampleName),
		"in a block":        classFor(e, inBlock, exampleName),
		"one more rule":     classFor(e, classFor(e, inBlock, exampleName), everyName),
		"both rules, alone": classFor(e, engine.FixedClass(model.World), exampleName, everyName),
	}
	for what, class := range wanted {
		if class == 0 {
			t.Errorf("%s: no class is reserved", what)
		}
	}
	table, _ := e.Table(webKey(e), model.Egress)
	if d, _ := engine.Lookup(table.RowsOf(wanted["one more rule"]), model.TCP, 443); !d.Allowed {
		t.Errorf("port 443 in the rows of a reserved class: %s", d)
	}
	for _, step := range []struct {
		name string
		addr netip.Addr
		rule model.DNSRule
		want engine.ClassID
	}{
		{"a first address", netip.MustParseAddr("198.51.100.1"), exampleName, wanted["in no block"]},
		{"another one, in a block", outside, exampleName, wanted["in a block"]},
		{"a second rule", outside, everyName, wanted["one more rule"]},
	} {
		before := e.NameRevision()
		change := e.Apply(domainAdd(step.rule, step.addr))
		if got := e.End(step.addr).Class; got != step.want || len(change.Tables) > 0 || e.NameRevision() != before {
			t.Errorf("%s: class %d, want %d; tables %+v; revision %d, want %d", step.name, got, step.want, change.Tables, e.NameRevision(), before)
		}
	}
	e.Apply(engine.Update{Domains: []engine.DomainChange{{Rule: exampleName, Remove: []netip.Addr{outside}}, {Rule: everyName, Remove: []netip.Addr{outside}}}})
	if got := classFor(e, inBlock, exampleName); got != wanted["in a block"] {
		t.Errorf("when no address is of it any more, the class has number %d, want %d", got, wanted["in a block"])
	}
	e.Apply(engine.Update{RemovePolicies: []model.PolicyID{names.ID}})
	if rules, classes := e.NameClasses(); len(rules) != 0 || len(classes) != 1 {
		t.Errorf("without policy: rules %v and classes %+v", rules, classes)
	}
}

// webKey is the key of a pod of app web.
func webKey(e *engine.Engine) string { return e.End(addr(1)).Endpoint }

// TestReservedLimit: neither many rules nor many tables make more than the limit, and each change leaves classes of the first rules.
func TestReservedLimit(t *testing.T) {
	rule := func(i int) model.DNSRule { return model.DNSRule{Name: fmt.Sprintf("n%d.example", i)} }
	var rules []model.Rule
	for i := range 400 {
		rules = append(rules, domainPeer(rule(i), nil))
	}
	e := shop()
	before := e.Classes()
	e.Apply(engine.Update{SetPolicies: []model.Policy{toDomain("names", "web", rules...)}})
	if more := e.Classes() - before; more != 256 {
		t.Errorf("%d classes are reserved, want 256", more)
	}
	if classFor(e, engine.FixedClass(model.World), rule(0)) == 0 || classFor(e, engine.FixedClass(model.World), rule(399)) != 0 {
		t.Error("it is not the first rules that have classes")
	}
	// 100 pods with a table each, which select by the first 100 rules: more than 80 classes would take too much.
	var pods engine.Update
	for i := range 100 {
		p := toDomain(fmt.Sprint("pod", i), fmt.Sprint("app", i), rules[:100]...)
		pods.SetPolicies = append(pods.SetPolicies, p)
		pods.SetEndpoints = append(pods.SetEndpoints, model.Endpoint{
			Key: fmt.Sprint("shop/pod", i), Kind: model.Pod, Local: true, Namespace: "shop", Labels: map[string]string{"app": fmt.Sprint("app", i)},
			Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 9, 0, byte(i)})},
		})
	}
	e.Apply(pods)
	if more := e.Classes() - before; more < 75 || more > 85 {
		t.Errorf("with 101 tables %d classes are reserved, want about 80", more)
	}
	gone := engine.Update{}
	for _, ep := range pods.SetEndpoints {
		gone.RemoveEndpoints = append(gone.RemoveEndpoints, ep.Key)
	}
	e.Apply(gone)
	if more := e.Classes() - before; more != 256 {
		t.Errorf("with one table again %d classes are reserved, want 256", more)
	}
}

// TestReservedRenew: an engine in the place of one that had become too large reserves nothing.
func TestReservedRenew(t *testing.T) {
	names := toDomain("names", "web", domainPeer(exampleName, nil))
	e := engine.New(engine.Config{}).Renew()
	e.Apply(engine.Update{SetPolicies: []model.Policy{names}, SetEndpoints: []model.Endpoint{pod("web", 1)}})
	if class := classFor(e, engine.FixedClass(model.World), exampleName); class != 0 {
		t.Errorf("class %d is reserved", class)
	}
	e.Apply(domainAdd(exampleName, outside))
	if !e.Evaluate(addr(1), outside, model.TCP, 80).Allowed {
		t.Error("an address of a name is denied")
	}
}
