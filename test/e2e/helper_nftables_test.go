package e2e

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// nftablesMode writes the rules for nft.
type nftablesMode struct{}

func (nftablesMode) String() string { return "nftables" }

func (nftablesMode) apply(t testing.TB, node *testutil.Node, p proxy) {
	t.Helper()
	onNode(t, node, newNFTables(p).String(), "nft", "-f", "-")
}

var nftablesInvalid = regexp.MustCompile(`packets (\d+) bytes`)

func (nftablesMode) invalid(t testing.TB, node *testutil.Node, six bool) int {
	t.Helper()
	family := "ip"
	if six {
		family = "ip6"
	}
	return packetsIn(t, nftablesInvalid, onNode(t, node, "", "nft", "list", "counter", family, "kube-proxy", "invalid"))
}

// nftables is the table of kube-proxy, of one family.
type nftables struct {
	proxy
	ip        string              // "ip" or "ip6": the family, and its header in expressions
	address   string              // the type of its addresses
	chains    []string            // their names, in order
	rules     map[string][]string // by chain
	sets      []string
	clusterIP []string // elements of the map of cluster IPs
	nodePorts []string // elements of the map of node ports
}

func newNFTables(p proxy) *nftables {
	n := &nftables{proxy: p, ip: "ip", address: "ipv4_addr", rules: map[string][]string{}}
	if p.node.Is6() {
		n.ip, n.address = "ip6", "ipv6_addr"
	}
	n.base()
	for _, s := range p.services {
		for _, protocol := range protocols {
			n.service(s, protocol)
		}
	}
	return n
}

func (n *nftables) rule(chain, format string, args ...any) {
	if n.rules[chain] == nil {
		n.chains = append(n.chains, chain)
	}
	n.rules[chain] = append(n.rules[chain], fmt.Sprintf(format, args...))
}

func (n *nftables) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table %s kube-proxy {\n\tcounter invalid { }\n", n.ip)
	fmt.Fprintf(&b, "\tset nodeport-ips { type %s; elements = { %s }; }\n", n.address, n.node)
	fmt.Fprintf(&b, "\tmap service-ips { type %s . inet_proto . inet_service : verdict; elements = { %s }; }\n", n.address, strings.Join(n.clusterIP, ", "))
	fmt.Fprintf(&b, "\tmap service-nodeports { type inet_proto . inet_service : verdict; elements = { %s }; }\n", strings.Join(n.nodePorts, ", "))
	for _, set := range n.sets {
		fmt.Fprintf(&b, "\tset %s { type %s; flags dynamic,timeout; timeout 3h; }\n", set, n.address)
	}
	for _, chain := range n.chains {
		fmt.Fprintf(&b, "\tchain %s {\n\t\t%s\n\t}\n", chain, strings.Join(n.rules[chain], "\n\t\t"))
	}
	b.WriteString("}\n")
	return b.String()
}

// base is what there is without any Service.
func (n *nftables) base() {
	n.rule("filter-forward", "type filter hook forward priority -110;")
	n.rule("filter-forward", "ct state invalid counter name invalid drop")
	n.rule("nat-prerouting", "type nat hook prerouting priority -100;")
	n.rule("nat-prerouting", "jump services")
	n.rule("nat-output", "type nat hook output priority -100;")
	n.rule("nat-output", "jump services")
	n.rule("nat-postrouting", "type nat hook postrouting priority 100;")
	n.rule("nat-postrouting", "jump masquerading")
	n.rule("services", "%s daddr . meta l4proto . th dport vmap @service-ips", n.ip)
	n.rule("services", "%s daddr @nodeport-ips meta l4proto . th dport vmap @service-nodeports", n.ip)
	n.rule("mark-for-masquerade", "meta mark set meta mark or %s", masqueradeMark)
	n.rule("masquerading", "meta mark and %s == 0 return", masqueradeMark)
	n.rule("masquerading", "meta mark set meta mark xor %s", masqueradeMark) // a packet may come by here twice, as in a tunnel
	n.rule("masquerading", "masquerade fully-random")
}

// service is what there is for one port of a Service.
func (n *nftables) service(s service, protocol string) {
	id := s.name + "-" + protocol
	all, external := "service-"+id, "external-"+id
	n.clusterIP = append(n.clusterIP, fmt.Sprintf("%s . %s . %d : goto %s", s.clusterIP, protocol, servicePort, all))
	n.rule(all, "%s daddr %s %s dport %d %[1]s saddr != %[5]s jump mark-for-masquerade", n.ip, s.clusterIP, protocol, servicePort, n.pods)
	n.balance(s, all, id, allBackends(s))
	for i, backend := range s.backends {
		n.backend(s, protocol, fmt.Sprintf("%s-%d", id, i), backend)
	}
	if s.nodePort == 0 {
		return
	}
	n.nodePorts = append(n.nodePorts, fmt.Sprintf("%s . %d : goto %s", protocol, s.nodePort, external))
	if !s.local {
		n.rule(external, "jump mark-for-masquerade")
		n.rule(external, "goto %s", all)
		return
	}
	n.rule(external, "%s saddr %s goto %s", n.ip, n.pods, all) // pods are not outside
	n.rule(external, "fib saddr type local jump mark-for-masquerade")
	n.rule(external, "fib saddr type local goto %s", all)
	n.balance(s, external, id, n.ownBackends(s))
}

// balance chooses one of the backends: the client's own with affinity, or else any.
func (n *nftables) balance(s service, chain, id string, backends []int) {
	var choices []string
	for position, i := range backends {
		if s.affinity {
			n.rule(chain, "%s saddr @affinity-%s-%d goto endpoint-%[2]s-%[3]d", n.ip, id, i)
		}
		choices = append(choices, fmt.Sprintf("%d : goto endpoint-%s-%d", position, id, i))
	}
	n.rule(chain, "numgen random mod %d vmap { %s }", len(choices), strings.Join(choices, ", "))
}

// backend translates to it. A backend that reaches itself is masqueraded, so that the replies come back here.
func (n *nftables) backend(s service, protocol, id string, to netip.AddrPort) {
	chain := "endpoint-" + id
	n.rule(chain, "%s saddr %s jump mark-for-masquerade", n.ip, to.Addr())
	if s.affinity {
		n.sets = append(n.sets, "affinity-"+id)
		n.rule(chain, "update @affinity-%s { %s saddr }", id, n.ip)
	}
	n.rule(chain, "meta l4proto %s dnat to %s", protocol, to)
}
