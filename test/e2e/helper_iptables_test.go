package e2e

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// iptablesMode writes the rules for iptables.
type iptablesMode struct{}

func (iptablesMode) String() string { return "iptables" }

// program is one for the kernel's own iptables where that works, or else for the one over nftables.
func (iptablesMode) program(node *testutil.Node, six bool, verb string) string {
	tool := "iptables"
	if six {
		tool = "ip6tables"
	}
	if _, err := runOnNode(node, "", tool+"-legacy-save", "-t", "nat"); err == nil {
		return tool + "-legacy-" + verb
	}
	return tool + "-" + verb
}

func (m iptablesMode) apply(t testing.TB, node *testutil.Node, p proxy) {
	t.Helper()
	var nat, filter iptablesTable
	filter.filterBase()
	nat.natBase()
	for _, s := range p.services {
		for _, protocol := range protocols {
			nat.service(p, s, protocol)
		}
	}
	nat.rule("KUBE-SERVICES -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS") // after all others
	onNode(t, node, filter.String("filter")+nat.String("nat"), m.program(node, p.node.Is6(), "restore"), "--wait")
}

var iptablesInvalid = regexp.MustCompile(`(?m)^\[(\d+):\d+\] -A KUBE-FORWARD .*INVALID.* -j DROP$`)

func (m iptablesMode) invalid(t testing.TB, node *testutil.Node, six bool) int {
	t.Helper()
	return packetsIn(t, iptablesInvalid, onNode(t, node, "", m.program(node, six, "save"), "-c", "-t", "filter"))
}

// iptablesTable is a table as iptables-restore reads it.
type iptablesTable struct{ chains, rules []string }

func (t *iptablesTable) chain(names ...string) { t.chains = append(t.chains, names...) }

func (t *iptablesTable) rule(format string, args ...any) {
	t.rules = append(t.rules, "-A "+fmt.Sprintf(format, args...))
}

func (t *iptablesTable) String(name string) string {
	text := "*" + name + "\n"
	for _, chain := range t.chains {
		text += ":" + chain + " - [0:0]\n"
	}
	return text + strings.Join(t.rules, "\n") + "\nCOMMIT\n"
}

// filterBase is what the table filter has without any Service.
func (t *iptablesTable) filterBase() {
	t.chain("KUBE-FORWARD")
	t.rule(`FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`)
	t.rule("KUBE-FORWARD -m conntrack --ctstate INVALID -j DROP")
	t.rule("KUBE-FORWARD -m mark --mark %s/%[1]s -j ACCEPT", masqueradeMark)
	t.rule("KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
}

// natBase is what the table nat has without any Service.
func (t *iptablesTable) natBase() {
	t.chain("KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ")
	t.rule(`PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`)
	t.rule(`OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`)
	t.rule(`POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING`)
	t.rule("KUBE-MARK-MASQ -j MARK --or-mark %s", masqueradeMark)
	t.rule("KUBE-POSTROUTING -m mark ! --mark %s/%[1]s -j RETURN", masqueradeMark)
	t.rule("KUBE-POSTROUTING -j MARK --xor-mark %s", masqueradeMark) // a packet may come by here twice, as in a tunnel
	t.rule("KUBE-POSTROUTING -j MASQUERADE --random-fully")
}

// service is what the table nat has for one port of a Service.
func (t *iptablesTable) service(p proxy, s service, protocol string) {
	id := strings.ToUpper(s.name + "-" + protocol)
	all, external := "KUBE-SVC-"+id, "KUBE-EXT-"+id
	match := fmt.Sprintf("-p %s -m %[1]s --dport", protocol)
	t.chain(all)
	t.rule("KUBE-SERVICES -d %s %s %d -j %s", prefixOf(s.clusterIP), match, servicePort, all)
	t.rule("%s ! -s %s -d %s %s %d -j KUBE-MARK-MASQ", all, p.pods, prefixOf(s.clusterIP), match, servicePort)
	for i, backend := range s.backends {
		t.backend(s, protocol, endpointChain(id, i), backend)
	}
	t.balance(s, all, id, allBackends(s))
	if s.nodePort == 0 {
		return
	}
	t.chain(external)
	t.rule("KUBE-NODEPORTS %s %d -j %s", match, s.nodePort, external)
	if !s.local {
		t.rule("%s -j KUBE-MARK-MASQ", external)
		t.rule("%s -j %s", external, all)
		return
	}
	local := "KUBE-SVL-" + id
	t.chain(local)
	t.rule("%s -s %s -j %s", external, p.pods, all) // pods are not outside
	t.rule("%s -m addrtype --src-type LOCAL -j KUBE-MARK-MASQ", external)
	t.rule("%s -m addrtype --src-type LOCAL -j %s", external, all)
	t.rule("%s -j %s", external, local)
	t.balance(s, local, id, p.ownBackends(s))
}

func endpointChain(id string, i int) string { return fmt.Sprintf("KUBE-SEP-%s-%d", id, i) }

// balance chooses one of the backends: the client's own with affinity, or else any.
func (t *iptablesTable) balance(s service, chain, id string, backends []int) {
	for _, i := range backends {
		if sep := endpointChain(id, i); s.affinity {
			t.rule("%s -m recent --name %s --rcheck --seconds 10800 --reap -j %[2]s", chain, sep)
		}
	}
	for n, i := range backends {
		chance := ""
		if left := len(backends) - n; left > 1 {
			chance = fmt.Sprintf(" -m statistic --mode random --probability %.10f", 1/float64(left))
		}
		t.rule("%s%s -j %s", chain, chance, endpointChain(id, i))
	}
}

// backend translates to it. A backend that reaches itself is masqueraded, so that the replies come back here.
func (t *iptablesTable) backend(s service, protocol, chain string, to netip.AddrPort) {
	t.chain(chain)
	t.rule("%s -s %s -j KUBE-MARK-MASQ", chain, prefixOf(to.Addr()))
	remember := ""
	if s.affinity {
		remember = fmt.Sprintf(" -m recent --name %s --set", chain)
	}
	t.rule("%s -p %s%s -m %[2]s -j DNAT --to-destination %[4]s", chain, protocol, remember, to)
}
