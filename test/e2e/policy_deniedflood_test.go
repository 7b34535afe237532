package e2e

import (
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/internal/testutil"
)

// TestDeniedFlood has a pod that may send nothing send a lot: the node's conntrack keeps room, and source ports, for
// others.
func TestDeniedFlood(t *testing.T) {
	r := newRig(t, "--masquerade=both")
	flooder, other := r.labelled("flooder", "flooder"), r.pod()
	r.applyPolicy(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: flooder, namespace: shop}
spec:
  podSelector: {matchLabels: {app: flooder}}
  policyTypes: [Egress]
`)
	server := netip.AddrPortFrom(testutil.OutsideIPv4, 8080)
	respond(t, r.node.Fabric.Namespace, "outside", server)
	if err := r.node.Fabric.Do(func() error { // a firewall before the server, which answers nothing
		return exec.Command("nft", "add table ip fw; add chain ip fw in { type filter hook prerouting priority 0; }; add rule ip fw in th dport 8081 drop").Run()
	}); err != nil {
		t.Fatal(err)
	}
	room, err := strconv.Atoi(strings.TrimSpace(onNode(t, r.node, "", "cat", "/proc/sys/net/netfilter/nf_conntrack_max")))
	if err != nil {
		t.Fatal(err)
	}
	w := r.wire(flooder)
	ip := func(p layers.IPProtocol) *layers.IPv4 { return ip4(flooder.ipv4, testutil.OutsideIPv4, p) }
	for _, flood := range []struct {
		name  string
		count int
		frame func(i uint16) []byte
	}{
		{"a SYN from each port", 65535, func(i uint16) []byte {
			h := &layers.TCP{SrcPort: layers.TCPPort(i), DstPort: 8080, SYN: true, Window: 1000}
			ip := ip(layers.IPProtocolTCP)
			_ = h.SetNetworkLayerForChecksum(ip)
			return w.frame(w.eth(layers.EthernetTypeIPv4), ip, h)
		}},
		{"segments", 20_000, func(i uint16) []byte {
			h := &layers.TCP{SrcPort: layers.TCPPort(i), DstPort: 8081, ACK: true, Window: 1000}
			ip := ip(layers.IPProtocolTCP)
			_ = h.SetNetworkLayerForChecksum(ip)
			return w.frame(w.eth(layers.EthernetTypeIPv4), ip, h)
		}},
		{"chunks of SCTP", 20_000, func(i uint16) []byte {
			h := &layers.SCTP{SrcPort: layers.SCTPPort(i), DstPort: 8081, VerificationTag: 7}
			return w.frame(w.eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolSCTP), h, gopacket.Payload{4, 0, 0, 8, 0, 1, 0, 4})
		}},
		{"datagrams", 20_000, func(i uint16) []byte {
			h := &layers.UDP{SrcPort: layers.UDPPort(i), DstPort: 8080}
			ip := ip(layers.IPProtocolUDP)
			_ = h.SetNetworkLayerForChecksum(ip)
			return w.frame(w.eth(layers.EthernetTypeIPv4), ip, h)
		}},
		{"pings", 20_000, func(i uint16) []byte {
			h := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: i}
			return w.frame(w.eth(layers.EthernetTypeIPv4), ip(layers.IPProtocolICMPv4), h)
		}},
		{"packets of other protocols", 20_000, func(i uint16) []byte {
			ip := ip(layers.IPProtocol(200))
			ip.DstIP = net.IPv4(192, 0, byte(i>>8), byte(i))
			return w.frame(w.eth(layers.EthernetTypeIPv4), ip, gopacket.Payload("data"))
		}},
	} {
		begin := time.Now()
		for i := range flood.count {
			w.send(flood.frame(uint16(i + 1)))
		}
		tracked, _ := strconv.Atoi(strings.TrimSpace(onNode(t, r.node, "", "conntrack", "-C")))
		t.Logf("%s in %s: %d connections are tracked, of %d", flood.name, time.Since(begin), tracked, room)
		if tracked > room/50 {
			t.Errorf("after %s the flooder's connections are %d of %d in the node's conntrack", flood.name, tracked, room)
		}
		for range 5 {
			conn, err := connectFrom(other.Namespace, server, 900*time.Millisecond)
			if err != nil {
				t.Errorf("after %s another pod does not connect: %v", flood.name, err)
				continue
			}
			conn.Close()
		}
	}
}

func connectFrom(ns *testutil.Namespace, to netip.AddrPort, timeout time.Duration) (conn net.Conn, err error) {
	err = ns.Do(func() error { conn, err = net.DialTimeout("tcp", to.String(), timeout); return err })
	return conn, err
}
