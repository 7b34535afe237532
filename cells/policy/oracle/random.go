package oracle

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// Random makes random cases of few names, labels, addresses and ports, so that policies meet.
type Random struct{ *rand.Rand }

// NewRandom returns a source that gives the same cases for the same seed.
func NewRandom(seed uint64) Random { return Random{rand.New(rand.NewPCG(seed, 1))} }

func pick[T any](r Random, values ...T) T { return values[r.IntN(len(values))] }

func (r Random) chance(percent int) bool { return r.IntN(100) < percent }

func (r Random) labels() map[string]string {
	labels := map[string]string{}
	for _, key := range []string{"app", "tier", "zone"} {
		if r.chance(70) {
			labels[key] = pick(r, "a", "b", "c")
		}
	}
	return labels
}

// Address is of a pod, a node, or outside; with few values.
func (r Random) Address() netip.Addr {
	low := byte(r.IntN(12))
	switch r.IntN(10) {
	case 0:
		return netip.AddrFrom4([4]byte{192, 0, 2, low})
	case 1:
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: low})
	case 2, 3, 4:
		return netip.AddrFrom16([16]byte{0xfd, 14: byte(r.IntN(2)), 15: low})
	}
	return netip.AddrFrom4([4]byte{10, 0, byte(r.IntN(2)), low})
}

// Unmanaged returns some of the few ranges that there are, which do not overlap.
func (r Random) Unmanaged() (some []netip.Prefix) {
	for _, text := range []string{"10.0.0.0/29", "10.0.0.8/31", "10.0.1.0/24", "fd00::/125", "fd00::100/120"} {
		if r.chance(20) {
			some = append(some, netip.MustParsePrefix(text))
		}
	}
	return some
}

// Endpoint returns one of the few that there are, with random properties.
func (r Random) Endpoint() model.Endpoint {
	n := r.IntN(16)
	ep := model.Endpoint{Key: fmt.Sprint("e", n), Kind: model.Pod, Local: r.chance(60), Labels: r.labels()}
	if r.chance(25) {
		ep.Kind = pick(r, model.Host, model.Host, model.Host, model.RemoteNode, model.Health, model.Unmanaged, model.Init)
	}
	ep.Audit = r.chance(10)
	ep.Namespace = pick(r, "red", "green", "blue")
	ep.NamespaceLabels = map[string]string{"name": ep.Namespace}
	if r.chance(30) {
		ep.NamespaceLabels["team"] = pick(r, "a", "b")
	}
	for range r.IntN(3) {
		ep.Addresses = append(ep.Addresses, r.Address())
	}
	for range r.IntN(3) {
		port := model.NamedPort{Name: pick(r, "web", "dns"), Protocol: r.protocol(), Number: r.Port()}
		if r.chance(5) {
			port.Protocol = model.ICMP // which has no ports
		}
		ep.NamedPorts = append(ep.NamedPorts, port)
	}
	return ep
}

func (r Random) protocol() model.Protocol {
	return pick(r, model.TCP, model.TCP, model.UDP, model.SCTP)
}

// Port is one of few, at and beside the ends of ranges.
func (r Random) Port() uint16 {
	return pick[uint16](r, 0, 1, 53, 79, 80, 81, 127, 128, 443, 1023, 1024, 8080, 32767, 32768, 65534, 65535)
}

// Connection is between any two addresses, mostly of the world's endpoints, and often to a named port.
func (r Random) Connection(w World) Connection {
	c := Connection{From: r.Address(), To: r.Address(), Protocol: r.protocol(), Port: r.Port()}
	for _, end := range []*netip.Addr{&c.From, &c.To} {
		if len(w.Endpoints) == 0 || r.chance(20) {
			continue
		}
		ep := pick(r, w.Endpoints...)
		if len(ep.Addresses) > 0 {
			*end = pick(r, ep.Addresses...)
		}
		if len(ep.NamedPorts) > 0 && r.chance(30) {
			port := pick(r, ep.NamedPorts...)
			c.Protocol, c.Port = port.Protocol, port.Number
		}
	}
	if names := slices.Sorted(maps.Keys(w.Names)); len(names) > 0 && r.chance(25) {
		if addresses := w.Names[pick(r, names...)]; len(addresses) > 0 {
			c.To = pick(r, addresses...)
		}
	}
	if r.chance(10) {
		c.Protocol = pick(r, model.ICMP, model.ICMPv6, 47)
		c.Port = max(c.Port, 1) // of ICMP, port 0 stands for all types but echo requests
	}
	return c
}

func (r Random) selector(keys ...string) model.Selector {
	var s model.Selector
	for range r.IntN(3) {
		q := model.Requirement{Key: pick(r, keys...), Operator: pick(r, model.In, model.In, model.In, model.NotIn, model.Exists, model.DoesNotExist)}
		if q.Operator == model.In || q.Operator == model.NotIn {
			for range 1 + r.IntN(2) {
				q.Values = append(q.Values, pick(r, "a", "b", "c", "red", "green"))
			}
		}
		s = append(s, q)
	}
	return s
}

func (r Random) pods() model.Pods {
	p := model.Pods{Labels: r.selector("app", "tier", "zone")}
	if r.chance(40) {
		p.Namespace = pick(r, "red", "green", "blue")
	} else {
		p.Namespaces = r.selector("name", "team")
	}
	return p
}

func (r Random) block(exceptions bool) *model.Block {
	addr := r.Address()
	cidr, _ := addr.Prefix(pick(r, 0, addr.BitLen()/2, addr.BitLen()-8, addr.BitLen()-3, addr.BitLen()-1, addr.BitLen()))
	b := &model.Block{CIDR: cidr}
	for range r.IntN(3) {
		addr := r.Address()
		except, _ := addr.Prefix(addr.BitLen() - r.IntN(5))
		if exceptions && cidr.Contains(addr) && except.Bits() > cidr.Bits() {
			b.Except = append(b.Except, except)
		}
	}
	return b
}

// domain is one of few rules, so that equal ones meet.
func (r Random) domain() model.DNSRule { return pick(r, Domains()...) }

// Domains are the rules for names that there are.
func Domains() []model.DNSRule {
	return []model.DNSRule{
		{Name: "a.example"}, {Name: "b.a.example"}, {Pattern: "*.example"}, {Pattern: "**.example"}, {Pattern: "*"}, {Pattern: "c*.d.example"},
	}
}

// domainNames are the names that there are.
func domainNames() []string {
	return []string{"a.example", "b.a.example", "d.example", "c.d.example", "cc.d.example", "example", "other.test"}
}

// Names changes the addresses of one of the few names that there are. They may be of pods and nodes, too.
func (r Random) Names(names map[string][]netip.Addr) {
	name := pick(r, domainNames()...)
	names[name] = nil
	for range r.IntN(5) {
		addr := r.Address()
		if r.chance(70) {
			addr = pick(r, netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(12))}), netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: byte(r.IntN(12))}))
		}
		names[name] = append(names[name], addr)
	}
}

func (r Random) peer(kind string, d model.Direction) model.Peer {
	n := r.IntN(6)
	switch {
	case isCilium(kind) && d == model.Egress && r.chance(30):
		return model.Peer{Domain: r.domain()}
	case isCilium(kind) && n < 2:
		return model.Peer{Kinds: model.KindSet(1 + r.IntN(1<<(model.Pod+1)-1))}
	case isCilium(kind) && n < 4:
		block := r.block(true)
		block.OutsideOnly = true
		return model.Peer{Block: block}
	case !isAdmin(kind) && n == 4:
		return model.Peer{Any: true}
	case kind == model.KindNetworkPolicy && n < 2:
		return model.Peer{Block: r.block(true)}
	case isAdmin(kind) && d == model.Egress && n == 0:
		s := r.selector("app", "zone")
		return model.Peer{Nodes: &s}
	case isAdmin(kind) && d == model.Egress && n < 3:
		return model.Peer{Block: r.block(false)}
	case isAdmin(kind) && d == model.Egress && n == 3:
		return model.Peer{Domain: r.domain()}
	}
	p := r.pods()
	return model.Peer{Pods: &p}
}

func isCilium(kind string) bool {
	return kind == model.KindCiliumNetworkPolicy || kind == model.KindCiliumClusterwideNetworkPolicy
}

// isAdmin is of the kinds of network-policy-api.
func isAdmin(kind string) bool { return kind != model.KindNetworkPolicy && !isCilium(kind) }

func (r Random) port() model.Port {
	p := model.Port{Protocol: r.protocol()}
	switch r.IntN(4) {
	case 0:
		p.Name = pick(r, "web", "dns")
		if r.chance(50) {
			p.Protocol = 0
		}
	case 1:
		p.First, p.Last = r.Port(), r.Port()
		if p.First > p.Last {
			p.First, p.Last = p.Last, p.First
		}
	case 2:
		p.Last = 65535
	default:
		p.First = r.Port()
		p.Last = p.First
	}
	return p
}

// icmpType is echo requests, or all other types.
func (r Random) icmpType() model.Port {
	p := model.Port{Protocol: pick(r, model.ICMP, model.ICMPv6)}
	if r.chance(70) {
		p.First = p.Protocol.EchoRequest()
		p.Last = p.First
	}
	return p
}

func (r Random) rules(kind string, d model.Direction) *model.Rules {
	rules := model.Rules{}
	for range r.IntN(4) {
		var rule model.Rule
		switch {
		case isCilium(kind):
			rule.Action = pick(r, model.Accept, model.Accept, model.Deny)
		case isAdmin(kind):
			rule.Action = pick(r, model.Accept, model.Deny, model.Pass)
		}
		for range 1 + r.IntN(2) {
			peer := r.peer(kind, d)
			if peer.Domain != (model.DNSRule{}) && isAdmin(kind) {
				rule.Action = model.Accept
			}
			rule.Peers = append(rule.Peers, peer)
		}
		if r.chance(60) {
			for range 1 + r.IntN(3) {
				rule.Ports = append(rule.Ports, r.port())
			}
			if isCilium(kind) && r.chance(20) {
				rule.Ports = append(rule.Ports, r.icmpType())
			}
		}
		if isCilium(kind) && rule.Action == model.Accept && r.chance(75) {
			rule.Layer7 = r.layer7()
			if r.chance(30) {
				rule.Peers = append(rule.Peers, model.Peer{Any: true})
			}
		}
		rules = append(rules, rule)
	}
	return &rules
}

// layer7 is of few rules, so that equal ones meet.
func (r Random) layer7() *model.Layer7 {
	l := &model.Layer7{}
	dns := r.chance(30)
	for range 1 + r.IntN(2) {
		if dns {
			l.DNS = append(l.DNS, pick(r, model.DNSRule{Name: "a.example"}, model.DNSRule{Pattern: "*"}))
			continue
		}
		rule := model.HTTPRule{Method: pick(r, "", "GET"), Path: pick(r, "", "/a", "/b"), Host: pick(r, "", "", "a\\.example")}
		for range r.IntN(3) {
			rule.Headers = append(rule.Headers, pick(r, model.HTTPHeader{Name: "X-A", AnyValue: true}, model.HTTPHeader{Name: "X-A", Value: "1"}, model.HTTPHeader{Name: "X-B"}))
		}
		l.HTTP = append(l.HTTP, rule)
	}
	if r.chance(3) {
		return &model.Layer7{} // nothing may be asked for
	}
	return l
}

// wideRules accept what is asked for on nearly all connections.
func (r Random) wideRules() *model.Rules {
	rules := model.Rules{}
	for range 1 + r.IntN(2) {
		rule := model.Rule{Peers: []model.Peer{{Any: true}}, Layer7: r.layer7()}
		if r.chance(50) {
			rule.Ports = []model.Port{{Protocol: model.TCP, First: r.Port() / 2, Last: 65535}, {Protocol: model.UDP, Last: r.Port()}}
		}
		rules = append(rules, rule)
	}
	return &rules
}

// domainRules accept names only.
func (r Random) domainRules() *model.Rules {
	rules := model.Rules{}
	for range 1 + r.IntN(2) {
		rule := model.Rule{Peers: []model.Peer{{Domain: r.domain()}, {Domain: r.domain()}}}
		if r.chance(30) {
			rule.Ports = []model.Port{r.port()}
		}
		if r.chance(20) {
			rule.Layer7 = r.layer7()
		}
		rules = append(rules, rule)
	}
	return &rules
}

// Policy returns one of the few that there are, with random properties.
func (r Random) Policy() model.Policy {
	p := model.Policy{Subject: r.pods(), Audit: r.chance(15)}
	p.ID = model.PolicyID{Kind: pick(r, append(model.Kinds(), model.KindNetworkPolicy)...), Name: fmt.Sprint("p", r.IntN(4))}
	if model.Namespaced(p.ID.Kind) {
		p.ID.Namespace = pick(r, "red", "green", "blue")
		p.Subject = model.Pods{Namespace: p.ID.Namespace, Labels: p.Subject.Labels}
	}
	switch p.ID.Kind {
	case model.KindNetworkPolicy:
		p.Tier = model.TierNetworkPolicy
	case model.KindCiliumNetworkPolicy, model.KindCiliumClusterwideNetworkPolicy:
		p.Tier = model.TierNetworkPolicy
		p.EgressOpen, p.IngressOpen = r.chance(25), r.chance(25)
	case model.KindClusterNetworkPolicy:
		p.Tier = pick(r, model.TierAdmin, model.TierBaseline)
		p.Priority = r.IntN(3)
	case model.KindAdminNetworkPolicy:
		p.Priority = r.IntN(3)
	case model.KindBaselineAdminNetworkPolicy:
		p.Tier, p.Priority, p.ID.Name = model.TierBaseline, model.BaselineAdminPriority, "default"
	}
	if r.chance(70) {
		p.Egress = r.rules(p.ID.Kind, model.Egress)
	}
	if r.chance(70) {
		p.Ingress = r.rules(p.ID.Kind, model.Ingress)
	}
	if isCilium(p.ID.Kind) && r.chance(50) { // so that layer 7 rules of several policies meet
		p.Subject.Labels, p.Subject.Namespaces = nil, nil
		p.Egress, p.Ingress = r.wideRules(), r.wideRules()
	}
	if isCilium(p.ID.Kind) && r.chance(30) {
		p.Egress = r.domainRules()
	}
	return p
}
