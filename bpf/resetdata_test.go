package bpf_test

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// getFromOutside has layer 7 rules for what the client asks of other hosts.
const getFromOutside = "{endpointSelector: {matchLabels: {app: client}}, egress: [{toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{method: GET}]}}]}]}"

// segmentWith is segment with data.
func segmentWith(srcMAC, dstMAC []byte, src, dst netip.AddrPort, data []byte, flags func(*layers.TCP)) []byte {
	tcp := &layers.TCP{SrcPort: layers.TCPPort(src.Port()), DstPort: layers.TCPPort(dst.Port()), Window: 1000}
	flags(tcp)
	network, typ := network(src.Addr(), dst.Addr(), layers.IPProtocolTCP)
	_ = tcp.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer))
	return frame(ether(srcMAC, dstMAC, typ), network, tcp, gopacket.Payload(data))
}

// TestResetWithData has who may only GET send a kilobyte of anything in segments with the flag RST: they do not pass by
// the proxy.
func TestResetWithData(t *testing.T) {
	secret := make([]byte, 1000)
	p := newPolicyFixture(t)
	p.proxyLink(t)
	synRst := func(t *layers.TCP) { t.SYN, t.RST = true, true }
	for name, flags := range map[string]func(*layers.TCP){"ACK (for comparison)": ack, "RST": rst, "SYN, RST": synRst} {
		p.cilium(t, "get", getFromOutside)
		up := segmentWith(p.client.mac, p.client.hostMAC, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(outsider, serverPort), secret, flags)
		fromPod, _ := p.run(t, p.objects.FromPod, p.client, up)
		if toUplink := p.request(t, p.objects.ToUplink, p.uplink, &p.client, up); fromPod == toStack && toUplink == toNext {
			t.Errorf("%s with 1000 bytes of data, without a connection, leaves the node past the proxy", name)
		}
		p.cilium(t, "get", getFromServer)
		down := segmentWith(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), secret, flags)
		if toPod := p.request(t, p.objects.ToPod, p.server, &p.client, down); toPod == toStack {
			t.Errorf("%s with 1000 bytes of data, without a connection, gets to the server's pod past the proxy", name)
		}
		p.forgetConnections(t)
	}
}

// TestResetWithDataOfOpen has the client of an open connection past the stack send data in resets when layer 7 rules
// have come.
func TestResetWithDataOfOpen(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	wantVerdict(t, "SYN", p.fromClient(t, syn), deliver)
	wantVerdict(t, "SYN-ACK", p.fromServer(t, synACK), deliver)
	p.cilium(t, "get", getFromServer)
	c, s := netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort)
	if v, _ := p.run(t, p.objects.FromPod, p.client, segmentWith(p.client.mac, p.client.hostMAC, c, s, make([]byte, 1000), rst)); v == deliver {
		t.Error("a reset with 1000 bytes gets to the server past the proxy")
	}
}

// TestResetWithDataOfTracked has a server send data in a reset, on a connection that only the node's conntrack knows.
func TestResetWithDataOfTracked(t *testing.T) {
	p := newPolicyFixture(t)
	loadConntrack(t, p.netns)
	p.proxyLink(t)
	s, o := netip.AddrPortFrom(p.server.ip4, serverPort), netip.AddrPortFrom(outsider, clientPort)
	conversation{p.fixture, o, s, false}.addToConntrack(t, o, s, o)
	p.cilium(t, "get", from80)
	verdict, _ := p.run(t, p.objects.FromPod, p.server, segmentWith(p.server.mac, p.server.hostMAC, s, o, make([]byte, 1000), rst))
	wantVerdict(t, "a reset with data", verdict, dropped)
}
