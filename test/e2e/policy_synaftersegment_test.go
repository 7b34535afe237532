package e2e

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/internal/testutil"
)

// TestPolicySYNAfterSegment: a pod of another node sends a segment without SYN, which may be an answer, and then opens
// a connection from the same port. Policy denies it, where the receiver's node does not track connections, too.
func TestPolicySYNAfterSegment(t *testing.T) {
	const notrack = `table inet raw { chain pre { type filter hook prerouting priority raw
		ip saddr 10.100.0.0/16 ip daddr 10.100.0.0/16 notrack
		ip6 saddr fd00::/8 ip6 daddr fd00::/8 notrack
	}; }`
	for name, setup := range map[string]struct {
		flags   []string
		prepare func(t *testing.T, node *testutil.Node)
	}{
		"without conntrack": {[]string{"--masquerade=none"}, func(*testing.T, *testutil.Node) {}},
		"with conntrack":    {[]string{"--masquerade=none"}, trackConnections},
		"conntrack of IPv4 alone": {[]string{"--masquerade=none"}, func(t *testing.T, node *testutil.Node) {
			onNode(t, node, "", "iptables", "-A", "FORWARD", "-m", "conntrack", "--ctstate", "INVALID", "-j", "DROP")
		}},
		"notrack between pods": {nil, func(t *testing.T, node *testutil.Node) { onNode(t, node, notrack, "nft", "-f", "-") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newNodes(t, testutil.NewLAN(t), 2, setup.flags...)
			one, two := c.nodes[0], c.nodes[1]
			evil, victim := one.labelled("evil", "evil"), two.labelled("victim", "victim")
			c.waitForMesh([]pod{evil, victim})
			two.applyPolicy(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: victim, namespace: shop}
spec: {podSelector: {matchLabels: {app: victim}}, policyTypes: [Ingress]}
`)
			setup.prepare(t, two.node)
			sent, got := one.wire(evil), two.wire(victim)
			for i, addr := range []netip.Addr{victim.ipv4, victim.ipv6} {
				own, to := netip.AddrPortFrom([]netip.Addr{evil.ipv4, evil.ipv6}[i], 41000), netip.AddrPortFrom(addr, 8080)
				respond(t, victim.Namespace, "victim", to)
				sent.send(sent.push(own, to))
				got.until(func(p gopacket.Packet) bool {
					tcp, ok := p.TransportLayer().(*layers.TCP)
					return ok && tcp.PSH && uint16(tcp.SrcPort) == own.Port()
				})
				dialer := net.Dialer{Timeout: 2500 * time.Millisecond, LocalAddr: net.TCPAddrFromAddrPort(own)}
				_ = evil.Do(func() error {
					conn, err := dialer.Dial("tcp", to.String())
					if err == nil {
						t.Errorf("%s is connected to %s, whose policy denies it", conn.LocalAddr(), to)
						_ = conn.Close()
					}
					return nil
				})
			}
		})
	}
}

// push is a TCP segment that has PSH alone, of no connection.
func (w *wire) push(from, to netip.AddrPort) []byte {
	tcp := &layers.TCP{SrcPort: layers.TCPPort(from.Port()), DstPort: layers.TCPPort(to.Port()), PSH: true, Seq: 1000, Window: 64000}
	if from.Addr().Is6() {
		ip := ip6(from.Addr(), to.Addr(), layers.IPProtocolTCP)
		_ = tcp.SetNetworkLayerForChecksum(ip)
		return w.frame(w.eth(layers.EthernetTypeIPv6), ip, tcp)
	}
	ip := ip4(from.Addr(), to.Addr(), layers.IPProtocolTCP)
	_ = tcp.SetNetworkLayerForChecksum(ip)
	return w.frame(w.eth(layers.EthernetTypeIPv4), ip, tcp)
}
