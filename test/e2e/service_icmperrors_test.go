package e2e

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"
)

// TestServiceErrorAfterLoss: an ICMP error takes the path of the connection that it is about, with entries and without.
func TestServiceErrorAfterLoss(t *testing.T) {
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		wire := n.one.wire(n.podB)
		n.forEachFamily(func(t *testing.T, six bool) {
			for _, to := range []netip.AddrPort{n.b.at(six, backendPort), n.at(local, six)} {
				for _, lose := range []func(){
					func() {}, n.loseAll,
					func() { n.loseConnections(n.one.hostEnd(n.podA)) }, func() { n.loseConnections(n.one.hostEnd(n.podB)) },
				} {
					conn := n.mustConverse(t, "udp", to)
					a, err := conn.ask()
					if err != nil {
						t.Fatal(err)
					}
					lose()
					wire.send(wire.portUnreachable(n.b.at(six, backendPort), a.peer))
					if _, err := conn.hear(unasked); !errors.Is(err, unix.ECONNREFUSED) {
						t.Errorf("%s: %v", to, err)
					}
				}
			}
		})
		n.nothingDropped()
	})
}

// portUnreachable says that no program takes a datagram from peer at the port.
func (w *wire) portUnreachable(at, peer netip.AddrPort) []byte {
	header := &layers.UDP{SrcPort: layers.UDPPort(peer.Port()), DstPort: layers.UDPPort(at.Port())}
	if at.Addr().Is6() {
		about := ip6(peer.Addr(), at.Addr(), layers.IPProtocolUDP)
		_ = header.SetNetworkLayerForChecksum(about)
		ip := ip6(at.Addr(), peer.Addr(), layers.IPProtocolICMPv6)
		icmp := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(layers.ICMPv6TypeDestinationUnreachable, layers.ICMPv6CodePortUnreachable)}
		_ = icmp.SetNetworkLayerForChecksum(ip)
		quoted := append(make([]byte, 4), w.frame(about, header, gopacket.Payload("x"))...)
		return w.frame(w.eth(layers.EthernetTypeIPv6), ip, icmp, gopacket.Payload(quoted))
	}
	about := ip4(peer.Addr(), at.Addr(), layers.IPProtocolUDP)
	_ = header.SetNetworkLayerForChecksum(about)
	icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeDestinationUnreachable, layers.ICMPv4CodePort)}
	return w.frame(w.eth(layers.EthernetTypeIPv4), ip4(at.Addr(), peer.Addr(), layers.IPProtocolICMPv4), icmp,
		gopacket.Payload(w.frame(about, header, gopacket.Payload("x"))))
}
