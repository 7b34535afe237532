package e2e

import (
	"fmt"
	"net/netip"
	"testing"
)

// TestPolicyChangeWhileServerSpeaks changes the policy of a server, to whom all these clients stay allowed, while it
// alone has something to say: nothing of that is lost, by whatever path the client came.
func TestPolicyChangeWhileServerSpeaks(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	n.forEachFamily(func(t *testing.T, six bool) {
		spec := fmt.Sprintf("{podSelector: {matchLabels: {app: b}}, ingress: [{from: [{podSelector: {matchLabels: {app: a}}}, {ipBlock: {cidr: %q}}, {ipBlock: {cidr: %q}}",
			prefixOf(n.d.addr(six)), prefixOf(n.outside.addr(six)))
		n.policy(spec + "]}]}")
		direct, service, port := n.b.at(six, backendPort), n.at(local, six), n.nodePort(local, n.node1, six)
		open := &openConnections{serviceNodes: n}
		for _, c := range []struct {
			from party
			to   []netip.AddrPort
		}{
			{n.a, []netip.AddrPort{direct, service, port}},
			{n.b, []netip.AddrPort{service}},
			{n.d, []netip.AddrPort{direct, service}},
			{n.node1, []netip.AddrPort{direct, service, port}},
			{n.outside, []netip.AddrPort{direct, port}},
		} {
			for _, to := range c.to {
				for _, protocol := range protocols {
					open.add(fmt.Sprintf("from %s", c.from.name), protocol, c.from, to, n.b.responder(six))
				}
			}
		}
		for _, more := range []string{"192.0.2.128/25", "192.0.2.64/26"} {
			n.policy(spec + fmt.Sprintf(", {ipBlock: {cidr: %s}}]}]}", more))
			open.hear("after a change of the policy")
		}
	})
	n.noPolicy()
}
