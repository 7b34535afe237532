package oracle

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"sort"
	"strings"

	"porin.dev/porin/cells/policy/model"
)

// World is all that a decision depends on.
type World struct {
	Policies   []model.Policy
	Endpoints  []model.Endpoint // of several with one address, the last one counts
	HostPolicy bool             // traffic from the node to its pods is subject to policy
	Audit      bool             // no policy is in force for local pods
	// Unmanaged are ranges of pods of other nodes. With AllowUnmanaged addresses without an endpoint there reach local
	// pods.
	Unmanaged      []netip.Prefix
	AllowUnmanaged bool
	// Names are the addresses of names, as answers to DNS queries have said.
	Names map[string][]netip.Addr
}

// Answer is the decision for one direction and what has decided.
type Answer struct {
	Allowed bool
	Policy  model.PolicyID // empty if no policy has decided
	Rule    int            // -1: no rule, but that NetworkPolicies select the pod
	Layer7  string         // what may be asked for, as [Layer7Text] has it; empty: everything
}

// Connection is what is asked about.
type Connection struct {
	From, To netip.Addr
	Protocol model.Protocol
	Port     uint16
}

// Evaluate returns the answers for egress at the connection's source and for ingress at its destination.
func (w World) Evaluate(c Connection) (egress, ingress Answer) {
	return w.direction(c, model.Egress), w.direction(c, model.Ingress)
}

// WithoutAudit is the world in which everything is in force.
func (w World) WithoutAudit() World {
	all := w
	all.Audit, all.Policies, all.Endpoints = false, slices.Clone(w.Policies), slices.Clone(w.Endpoints)
	for i := range all.Policies {
		all.Policies[i].Audit = false
	}
	for i := range all.Endpoints {
		all.Endpoints[i].Audit = false
	}
	return all
}

var allowed = Answer{Allowed: true}

func (w World) direction(c Connection, d model.Direction) Answer {
	subjectAddr, peerAddr := c.From, c.To
	if d == model.Ingress {
		subjectAddr, peerAddr = c.To, c.From
	}
	subject, peer := w.owner(subjectAddr), w.owner(peerAddr)
	// "Note that host-networked pods are not included in subject selection": policies are for pods with their own address.
	if subject == nil || subject.Kind != model.Pod && subject.Kind != model.Init {
		return allowed
	}
	// A pod cannot block access to itself.
	if peer != nil && peer.Key == subject.Key {
		return allowed
	}
	// "OR if the traffic source is the pod's local node".
	if d == model.Ingress && subject.Local && peer != nil && peer.Kind == model.Host && !w.HostPolicy {
		return allowed
	}
	// Porin's documentation says: in audit what would be denied passes.
	if subject.Audit || subject.Local && w.Audit {
		return allowed
	}
	w.Policies = slices.DeleteFunc(slices.Clone(w.Policies), func(p model.Policy) bool { return p.Audit })
	if subject.Kind == model.Init {
		return Answer{}
	}
	// Porin's documentation says: with --policy-allow-unmanaged pods of other nodes that nothing is known of reach this
	// node's pods.
	if d == model.Ingress && subject.Local && w.AllowUnmanaged && w.kindOf(peer, peerAddr) == model.Unmanaged {
		return allowed
	}
	destination := w.owner(c.To)
	asked := question{subject: subject, peer: peer, peerAddr: peerAddr, kind: w.kindOf(peer, peerAddr), names: w.names(peerAddr), protocol: c.Protocol, port: c.Port}
	if destination != nil {
		asked.named = destination.NamedPorts
	}

	if answer, final := w.ordered(model.TierAdmin, d, asked); final {
		return answer
	}
	if answer, final := w.networkPolicies(d, asked); final {
		return answer
	}
	if answer, final := w.ordered(model.TierBaseline, d, asked); final {
		return answer
	}
	// "all pods can communicate with each other"
	return allowed
}

type question struct {
	subject, peer *model.Endpoint
	peerAddr      netip.Addr
	kind          model.EndpointKind // of the peer
	names         []string           // of the peer
	protocol      model.Protocol
	port          uint16
	named         []model.NamedPort // of the destination
}

// ordered is the admin or baseline tier: "Policies with lower priority values have higher precedence", then "the order
// in which the rule is written". Pass "skips all further rules in the current tier".
func (w World) ordered(tier model.Tier, d model.Direction, q question) (_ Answer, final bool) {
	var policies []model.Policy
	for _, p := range w.Policies {
		if p.Tier == tier && selectsPod(p.Subject, q.subject) {
			policies = append(policies, p)
		}
	}
	sort.Slice(policies, func(i, j int) bool {
		a, b := policies[i], policies[j]
		if a.Priority != b.Priority {
			return a.Priority < b.Priority
		}
		// The API leaves this open. Porin's documentation says: by kind and name.
		return a.ID.Kind+"\x00"+a.ID.Name < b.ID.Kind+"\x00"+b.ID.Name
	})
	for _, p := range policies {
		for i, r := range rules(p, d) {
			if !ruleMatches(r, q) {
				continue
			}
			switch r.Action {
			case model.Accept:
				return Answer{Allowed: true, Policy: p.ID, Rule: i}, true
			case model.Deny:
				return Answer{Policy: p.ID, Rule: i}, true
			case model.Pass:
				return Answer{}, false
			}
		}
	}
	return Answer{}, false
}

// networkPolicies: "Traffic is allowed to a pod if there are no NetworkPolicies selecting the pod, OR if the traffic
// matches at least one rule across all of the NetworkPolicy objects whose podSelector matches the pod." It "always
// makes a final decision for selected pods". Cilium: "Deny policies take precedence over allow policies", and with
// enableDefaultDeny: false "the policy will not cause the subject to switch to default-deny". Who decides, of several,
// is the first by kind, namespace and name.
func (w World) networkPolicies(d model.Direction, q question) (_ Answer, final bool) {
	var selecting []model.Policy
	for _, p := range w.Policies {
		affects := p.Ingress != nil
		if d == model.Egress {
			affects = p.Egress != nil
		}
		if p.Tier == model.TierNetworkPolicy && affects && selectsPod(p.Subject, q.subject) {
			selecting = append(selecting, p)
		}
	}
	if len(selecting) == 0 {
		return Answer{}, false
	}
	sort.Slice(selecting, func(i, j int) bool {
		a, b := selecting[i].ID, selecting[j].ID
		return a.Kind+"\x00"+a.Namespace+"\x00"+a.Name < b.Kind+"\x00"+b.Namespace+"\x00"+b.Name
	})
	find := func(accepts func(r model.Rule) bool) (found []Answer, asked model.Layer7) {
		for _, p := range selecting {
			for i, r := range rules(p, d) {
				if !accepts(r) || !ruleMatches(r, q) {
					continue
				}
				found = append(found, Answer{Policy: p.ID, Rule: i})
				if r.Layer7 != nil {
					asked.HTTP, asked.DNS = append(asked.HTTP, r.Layer7.HTTP...), append(asked.DNS, r.Layer7.DNS...)
				}
			}
		}
		return found, asked
	}
	if denying, _ := find(func(r model.Rule) bool { return r.Action == model.Deny }); len(denying) > 0 {
		return denying[0], true
	}
	// Cilium: "If a layer 4 rule is specified in the policy, and a similar layer 4 rule with layer 7 rules is also
	// specified, then the layer 7 portions of the latter rule will have no effect."
	if plain, _ := find(func(r model.Rule) bool { return r.Action == model.Accept && r.Layer7 == nil }); len(plain) > 0 {
		plain[0].Allowed = true
		return plain[0], true
	}
	// "Layer 7 rules are combined together if they are of the same type." Porin's documentation says: others are denied.
	if limited, asked := find(func(r model.Rule) bool { return r.Layer7 != nil && layer7Over(*r.Layer7, q.protocol) }); len(limited) > 0 {
		if len(asked.HTTP) == 0 || len(asked.DNS) == 0 {
			limited[0].Allowed, limited[0].Layer7 = true, Layer7Text(asked)
		}
		return limited[0], true
	}
	for _, p := range selecting {
		open := p.IngressOpen
		if d == model.Egress {
			open = p.EgressOpen
		}
		if !open {
			return Answer{Policy: p.ID, Rule: -1}, true
		}
	}
	return Answer{}, false
}

// layer7Over: "L7 rules can only apply to TCP except for DNS rules", which are over UDP, too.
func layer7Over(l model.Layer7, protocol model.Protocol) bool {
	switch {
	case len(l.DNS) > 0:
		return protocol == model.TCP || protocol == model.UDP
	case len(l.HTTP) > 0:
		return protocol == model.TCP
	}
	return false
}

// Layer7Text is equal for equal sets of rules.
func Layer7Text(l model.Layer7) string {
	texts := map[string]bool{}
	for _, r := range l.HTTP {
		var headers []string
		for _, h := range r.Headers {
			headers = append(headers, fmt.Sprintf("%#v", h))
		}
		sort.Strings(headers)
		texts[fmt.Sprintf("%q %q %q %q", r.Method, r.Path, r.Host, slices.Compact(headers))] = true
	}
	for _, r := range l.DNS {
		texts[fmt.Sprintf("%#v", r)] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(texts)), "\n")
}

func rules(p model.Policy, d model.Direction) []model.Rule {
	part := p.Ingress
	if d == model.Egress {
		part = p.Egress
	}
	if part == nil {
		return nil
	}
	return *part
}

// ruleMatches: "The traffic must match both ports and from."
func ruleMatches(r model.Rule, q question) bool {
	return slices.ContainsFunc(r.Peers, func(p model.Peer) bool { return peerMatches(p, q) }) && portsMatch(r.Ports, q)
}

func peerMatches(p model.Peer, q question) bool {
	switch {
	case p.Any:
		return true
	case p.Kinds != 0:
		return p.Kinds.Has(q.kind)
	case p.Pods != nil:
		return q.peer != nil && selectsPod(*p.Pods, q.peer)
	case p.Nodes != nil:
		// "It selects the nodeIPs as the peer type by matching on the IPs present in the node's status."
		return q.peer != nil && (q.peer.Kind == model.Host || q.peer.Kind == model.RemoteNode) && labelsMatch(*p.Nodes, q.peer.Labels)
	case p.Block != nil:
		// "cluster-internal traffic will be checked against the rule as well"; Cilium: "CIDR rules do not apply to traffic
		// where both sides of the connection are either managed by Cilium or use an IP belonging to a node in the cluster"
		if p.Block.OutsideOnly && q.kind != model.World {
			return false
		}
		addr := q.peerAddr.Unmap()
		if !p.Block.CIDR.Contains(addr) {
			return false
		}
		for _, except := range p.Block.Except {
			if except.Contains(addr) {
				return false
			}
		}
		return true
	}
	// Cilium: "toFQDNs rules cannot contain any other L3 rules", and they are for what is outside of the cluster.
	return q.kind == model.World && slices.ContainsFunc(q.names, func(name string) bool { return NameMatches(p.Domain, name) })
}

// NameMatches: "MatchPattern allows using wildcards to match DNS names. All wildcards are case insensitive. The
// wildcards are: * matches 0 or more DNS valid characters, and may occur anywhere in the pattern. As a special case a *
// as the leftmost character, without a following '.', matches all subdomains as well as the name to the right." "**. is
// a special prefix which matches all multilevel subdomains in the prefix." Of network-policy-api: "*.kubernetes.io
// matches [...] latest.blog.kubernetes.io".
func NameMatches(rule model.DNSRule, name string) bool {
	const valid = "[-a-z0-9_]"
	switch {
	case rule.Name != "":
		return rule.Name == name
	case rule.Pattern == "*":
		return true
	}
	labels, below := strings.CutPrefix(rule.Pattern, "**.")
	expression := strings.ReplaceAll(regexp.QuoteMeta(labels), `\*`, valid+"*")
	if below {
		expression = "(" + valid + `+\.)+` + expression
	}
	return regexp.MustCompile("^" + expression + "$").MatchString(name)
}

// names returns the names that have an address.
func (w World) names(addr netip.Addr) (names []string) {
	for name, addresses := range w.Names {
		if slices.Contains(addresses, addr.Unmap()) {
			names = append(names, name)
		}
	}
	return names
}

// portsMatch: "If this field is empty or missing, this rule matches all ports."
func portsMatch(ports []model.Port, q question) bool {
	if len(ports) == 0 {
		return true
	}
	switch q.protocol {
	case model.TCP, model.UDP, model.SCTP:
	case model.ICMP, model.ICMPv6:
		// A connection of ICMP is a ping: "ICMPs is a list of ICMP rule identified by type number".
		echo := map[model.Protocol]uint16{model.ICMP: 8, model.ICMPv6: 128}[q.protocol]
		return slices.Contains(ports, model.Port{Protocol: q.protocol, First: echo, Last: echo})
	default:
		return false
	}
	for _, p := range ports {
		if p.Protocol != 0 && p.Protocol != q.protocol {
			continue
		}
		if p.Name == "" {
			if q.port >= p.First && q.port <= p.Last {
				return true
			}
			continue
		}
		for _, n := range q.named {
			if n.Name == p.Name && n.Protocol == q.protocol && n.Number == q.port {
				return true
			}
		}
	}
	return false
}

func selectsPod(p model.Pods, ep *model.Endpoint) bool {
	if ep.Kind != model.Pod {
		return false
	}
	if p.Namespace != "" && p.Namespace != ep.Namespace {
		return false
	}
	return labelsMatch(p.Namespaces, ep.NamespaceLabels) && labelsMatch(p.Labels, ep.Labels)
}

// labelsMatch: "The requirements are ANDed. An empty label selector matches all objects."
func labelsMatch(s model.Selector, labels map[string]string) bool {
	for _, r := range s {
		value, exists := labels[r.Key]
		listed := false
		for _, v := range r.Values {
			listed = listed || v == value
		}
		ok := map[model.Operator]bool{
			model.In:           exists && listed,
			model.NotIn:        !(exists && listed),
			model.Exists:       exists,
			model.DoesNotExist: !exists,
		}[r.Operator]
		if !ok {
			return false
		}
	}
	return true
}

func (w World) kindOf(owner *model.Endpoint, addr netip.Addr) model.EndpointKind {
	switch {
	case owner != nil:
		return owner.Kind
	case slices.ContainsFunc(w.Unmanaged, func(cidr netip.Prefix) bool { return cidr.Contains(addr.Unmap()) }):
		return model.Unmanaged
	}
	return model.World
}

func (w World) owner(addr netip.Addr) *model.Endpoint {
	for i := len(w.Endpoints) - 1; i >= 0; i-- {
		for _, a := range w.Endpoints[i].Addresses {
			if a.Unmap() == addr.Unmap() {
				return &w.Endpoints[i]
			}
		}
	}
	return nil
}
