package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/policy/model"
)

// asking is a policy that lets all clients ask all pods for this.
func asking(name string, port uint16, layer7 *model.Layer7) model.Policy {
	return model.Policy{
		ID: model.PolicyID{Kind: model.KindCiliumClusterwideNetworkPolicy, Name: name}, Tier: model.TierNetworkPolicy,
		Ingress: &model.Rules{{Peers: []model.Peer{{Any: true}}, Ports: []model.Port{{Protocol: model.TCP, First: port, Last: port}}, Layer7: layer7}},
	}
}

func paths(texts ...string) *model.Layer7 {
	l := &model.Layer7{}
	for _, text := range texts {
		l.HTTP = append(l.HTTP, model.HTTPRule{Path: text})
	}
	return l
}

func numbers(list []*Layer7) (found []uint32) {
	for _, l := range list {
		found = append(found, l.Number)
	}
	return found
}

var onePod = model.Endpoint{Key: "shop/web", Kind: model.Pod, Local: true, Namespace: "shop", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}

func (e *Engine) decisionAt(port uint16) Decision {
	return e.Evaluate(netip.MustParseAddr("192.0.2.1"), onePod.Addresses[0], model.TCP, port).Ingress
}

// TestLayer7Numbers: equal rules have one number, in every engine, whatever their order, and it stays theirs until it
// is released.
func TestLayer7Numbers(t *testing.T) {
	first, second := New(Config{}), New(Config{})
	header := func(names ...string) model.HTTPRule {
		r := model.HTTPRule{Method: "GET"}
		for _, name := range names {
			r.Headers = append(r.Headers, model.HTTPHeader{Name: name, AnyValue: true})
		}
		return r
	}
	first.Apply(Update{SetEndpoints: []model.Endpoint{onePod}, SetPolicies: []model.Policy{
		asking("a", 80, paths("/a", "/b")), asking("b", 81, paths("/b")), asking("c", 81, paths("/a", "/b")), asking("d", 82, &model.Layer7{HTTP: []model.HTTPRule{header("A", "B")}}),
	}})
	second.Apply(Update{SetEndpoints: []model.Endpoint{onePod}, SetPolicies: []model.Policy{
		asking("other", 8080, paths("/c")), asking("a", 80, paths("/b", "/a", "/a")), asking("d", 82, &model.Layer7{HTTP: []model.HTTPRule{header("B", "A", "B")}}),
	}})
	if len(first.Layer7()) != 2 || len(second.Layer7()) != 3 || first.decisionAt(80).Layer7 != first.decisionAt(81).Layer7 {
		t.Errorf("%d and %d sets of rules, want those that differ", len(first.Layer7()), len(second.Layer7()))
	}
	for _, port := range []uint16{80, 82} {
		x, y := first.decisionAt(port), second.decisionAt(port)
		if x.Value() != y.Value() || x.Value() < minNumber || x.Value() > maxNumber {
			t.Errorf("port %d: value %d and %d, want one of 31 bits", port, x.Value(), y.Value())
		}
	}
	was := first.decisionAt(80).Layer7
	first.Apply(Update{RemovePolicies: []model.PolicyID{asking("a", 0, nil).ID, asking("c", 0, nil).ID}})
	if unused := first.UnusedLayer7(); !slices.Equal(unused, []*Layer7{was}) || !first.KnowsLayer7(was) {
		t.Errorf("rules %d are unused, want %d", numbers(unused), was.Number)
	}
	first.ReleaseLayer7(append(first.UnusedLayer7(), first.decisionAt(82).Layer7))
	if first.KnowsLayer7(was) || len(first.Layer7()) != 2 || len(first.UnusedLayer7()) != 0 {
		t.Errorf("after the release: %d in use, %d not, want two and none", len(first.Layer7()), len(first.UnusedLayer7()))
	}
}

// TestLayer7Collision: rules whose hash is taken get the next number, also behind the last one.
func TestLayer7Collision(t *testing.T) {
	x := newLayer7s()
	one := x.number(Layer7{content: "a"})
	delete(x.byNumber, one.Number)
	for n := range uint32(3) {
		x.byNumber[one.Number+n] = &Layer7{}
	}
	if again := x.number(Layer7{content: "a"}); again.Number != one.Number+3 {
		t.Errorf("number %d, want %d", again.Number, one.Number+3)
	}
	for n := one.Number; n <= one.Number+1000; n++ {
		x.byNumber[n] = &Layer7{}
	}
	for content := range 100_000 { // some hash is near the end
		l := x.number(Layer7{content: fmt.Sprint(content)})
		if l.Number < minNumber || l.Number > maxNumber {
			t.Fatalf("number %d", l.Number)
		}
	}
	if len(x.byContent) != 100_001 {
		t.Errorf("%d contents have numbers, want all", len(x.byContent))
	}
}

// TestLayer7Renew has the numbers of before in the engine that replaces another.
func TestLayer7Renew(t *testing.T) {
	e := New(Config{})
	u := Update{SetEndpoints: []model.Endpoint{onePod}, SetPolicies: []model.Policy{asking("a", 80, paths("/a"))}}
	e.Apply(u)
	was := e.decisionAt(80).Layer7
	e = e.Renew()
	if unused := e.UnusedLayer7(); !slices.Equal(unused, []*Layer7{was}) {
		t.Errorf("rules %d are unused, want %d", numbers(unused), was.Number)
	}
	e.Apply(u)
	if e.decisionAt(80).Layer7 != was || len(e.UnusedLayer7()) != 0 {
		t.Errorf("number %d, want %d", e.decisionAt(80).Layer7.Number, was.Number)
	}
}

// TestLayer7Withheld denies in rows, and says which rules they are.
func TestLayer7Withheld(t *testing.T) {
	e := New(Config{})
	e.Apply(Update{SetEndpoints: []model.Endpoint{onePod}, SetPolicies: []model.Policy{asking("a", 80, paths("/a")), asking("b", 81, paths("/b"))}})
	first := e.decisionAt(80).Layer7
	is := func(l *Layer7) bool { return l == first }
	if !e.WithholdLayer7(is) || e.WithholdLayer7(is) {
		t.Error("the first time nothing has changed, or the second time something has")
	}
	if d := e.decisionAt(80); d.Value() != ValueDeny || !d.Allowed {
		t.Errorf("%s has value %d, want a row that denies", d, d.Value())
	}
	if d := e.decisionAt(81); d.Value() != d.Layer7.Number {
		t.Errorf("%s has value %d, want %d", d, d.Value(), d.Layer7.Number)
	}
}

// TestLayer7Conflict denies what has rules of several protocols, and reports both.
func TestLayer7Conflict(t *testing.T) {
	e := New(Config{})
	dns := asking("dns", 80, &model.Layer7{DNS: []model.DNSRule{{Pattern: "*"}}})
	e.Apply(Update{SetEndpoints: []model.Endpoint{onePod}, SetPolicies: []model.Policy{asking("http", 80, paths("/a")), dns, asking("else", 81, paths("/a"))}})
	if d := e.decisionAt(80); d.Allowed || d.Reason != ReasonLayer7Conflict || d.Rule.Policy != dns.ID {
		t.Errorf("%s, want it denied by the first policy", d)
	}
	reports := e.Reports()
	if len(reports) != 2 || reports[0].Policies[0] != dns.ID || reports[0].Text != "ingress rule 0: rules for HTTP and for DNS accept the same connections, which are denied" {
		t.Errorf("reports %+v, want one about each policy", reports)
	}
	e.Apply(Update{SetPolicies: []model.Policy{asking("plain", 80, nil)}})
	if d := e.decisionAt(80); !d.Allowed || d.Layer7 != nil || len(e.Reports()) != 0 {
		t.Errorf("%s and reports %+v, want everything allowed by the rule without layer 7 rules", d, e.Reports())
	}
}

// TestLayer7String is what people read.
func TestLayer7String(t *testing.T) {
	e := New(Config{})
	e.Apply(Update{SetEndpoints: []model.Endpoint{onePod}, SetPolicies: []model.Policy{asking("a", 80, &model.Layer7{HTTP: []model.HTTPRule{
		{Method: "GET", Path: "/a", Host: "b", Headers: []model.HTTPHeader{{Name: "X-A", AnyValue: true}, {Name: "X-B", Value: "1"}}}, {},
	}})}})
	const want = "allowed: rule: CiliumClusterwideNetworkPolicy a, ingress rule 0, through the proxy: any method; GET /a, host b, header X-A, header X-B: 1"
	if got := e.decisionAt(80).String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestLayer7TooLarge: rules that are all asked for on other connections would take gigabytes.
func TestLayer7TooLarge(t *testing.T) {
	const rules = 500
	p := asking("large", 1, nil)
	*p.Ingress = nil
	for i := range rules {
		r := model.Rule{Peers: []model.Peer{{Any: true}}, Layer7: &model.Layer7{}, Ports: []model.Port{{Protocol: model.TCP, First: uint16(i), Last: 65535}}}
		for j := range 100 {
			r.Layer7.HTTP = append(r.Layer7.HTTP, model.HTTPRule{Path: fmt.Sprintf("/%d/%d", i, j)})
		}
		*p.Ingress = append(*p.Ingress, r)
	}
	e := New(Config{})
	e.Apply(Update{SetEndpoints: []model.Endpoint{onePod}, SetPolicies: []model.Policy{p}})
	if !e.Exceeded() {
		t.Errorf("work %d is not too much", e.size.work)
	}
}

// TestLayer7NumbersByKey: an author of policies without the key cannot construct two sets of rules with one number.
// When two sets collide, the order of the policies decides whose it is, and so another agent may give it to the other
// one: while that starts, the datapath has the previous numbers.
func TestLayer7NumbersByKey(t *testing.T) {
	keyed := func(key string) *Engine {
		e := New(Config{})
		e.SetLayer7Key([]byte(key))
		return e
	}
	seen, one, other := map[uint32]string{}, "", ""
	for i := 0; one == ""; i++ {
		x := keyed("a").layer7s
		path := fmt.Sprintf("/%d", i)
		n := x.number(*compileLayer7(paths(path)).alone).Number
		if seen[n] != "" {
			one, other = seen[n], path
		}
		seen[n] = path
	}
	number := func(key, first, then string) (ofOne uint32) {
		e := keyed(key)
		for i, path := range []string{first, then} {
			e.Apply(Update{SetEndpoints: []model.Endpoint{onePod}, SetPolicies: []model.Policy{asking(path, uint16(80+i), paths(path))}})
			if path == one {
				ofOne = e.decisionAt(uint16(80 + i)).Layer7.Number
			}
		}
		return ofOne
	}
	if number("a", one, other) == number("a", other, one) {
		t.Errorf("paths %s and %s do not have one number by the key they were found with", one, other)
	}
	if before, after := number("b", one, other), number("b", other, one); before != after || before == number("a", one, other) {
		t.Errorf("by another key, path %s has number %d, and %d after a restart", one, before, after)
	}
}
