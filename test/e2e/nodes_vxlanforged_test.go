package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/node/tunnel"
	"porin.dev/porin/internal/testutil"
)

// vxlanFrame is a datagram of UDP in a packet of a tunnel.
func vxlanFrame(src, dst netip.AddrPort, text string) []byte {
	udp := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: src.Addr().AsSlice(), DstIP: dst.Addr().AsSlice()}
	_ = udp.SetNetworkLayerForChecksum(ip)
	buf := gopacket.NewSerializeBuffer()
	err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		&layers.Ethernet{SrcMAC: testutil.MAC(2, 0, 0, 0, 0, 1), DstMAC: tunnel.MAC, EthernetType: layers.EthernetTypeIPv4}, ip, udp, gopacket.Payload(text))
	if err != nil {
		panic(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{8, 0, 0, 0}, abi.TunnelNetwork<<8), buf.Bytes()...)
}

// sendUDP sends a datagram from a namespace.
func sendUDP(t *testing.T, from *testutil.Namespace, src netip.Addr, to netip.AddrPort, payload []byte) {
	t.Helper()
	err := from.Do(func() error {
		var local *net.UDPAddr
		if src.IsValid() {
			local = net.UDPAddrFromAddrPort(netip.AddrPortFrom(src, 0))
		}
		c, err := net.DialUDP("udp", local, net.UDPAddrFromAddrPort(to))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(payload)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestVXLANForged has a pod, a machine that is no node, and a node that lies send packets of tunnels: none reaches a
// pod, and all are counted.
func TestVXLANForged(t *testing.T) {
	c := newTunnels(t, 3)
	one, two, three := c.nodes[0], c.nodes[1], c.nodes[2]
	evil, friend, victim, third := one.pod(), one.pod(), two.pod(), three.pod()
	c.waitForMesh([]pod{evil, friend, victim, third})
	inbox := listenUDP(t, victim.Namespace, victim.ipv4)
	at := netip.AddrPortFrom(victim.ipv4, portOf(inbox))
	tunnelOf := func(addr netip.Addr) netip.AddrPort { return netip.AddrPortFrom(addr, 8472) }
	forged := func(src netip.Addr) []byte { return vxlanFrame(netip.AddrPortFrom(src, 1), at, "forged") }
	counts := func(r *rig, name string, more float64, send func()) {
		t.Helper()
		before := r.metrics()[name]
		send()
		testutil.Eventually(t, func() error {
			if now := r.metrics()[name]; now != before+more {
				return fmt.Errorf("%s: %s is %v, want %v more than %v", r.node.Name, name, now, more, before)
			}
			return nil
		})
	}
	dropped := func(reason string) string {
		return fmt.Sprintf("porin_node_tunnel_drops_total{direction=%q,reason=%q}", "from", reason)
	}
	// Its node would masquerade it, so that it came from the address of a node.
	counts(one, "porin_node_tunnel_forged_total", 2, func() {
		sendUDP(t, evil.Namespace, netip.Addr{}, tunnelOf(two.node.IPv4), forged(friend.ipv4))
		sendUDP(t, evil.Namespace, netip.Addr{}, tunnelOf(two.node.IPv6), forged(friend.ipv4))
	})
	counts(one, dropped("unknown-node"), 1, func() { // to its own node
		sendUDP(t, evil.Namespace, netip.Addr{}, tunnelOf(one.node.IPv4), forged(friend.ipv4))
	})
	counts(two, dropped("unknown-node"), 1, func() {
		sendUDP(t, two.node.Fabric.Namespace, testutil.OutsideIPv4, tunnelOf(two.node.IPv4), forged(evil.ipv4))
	})
	counts(two, dropped("source"), 2, func() {
		sendUDP(t, one.node.Namespace, one.node.IPv4, tunnelOf(two.node.IPv4), forged(third.ipv4))
		sendUDP(t, one.node.Namespace, one.node.IPv6, tunnelOf(two.node.IPv6), forged(victim.ipv4))
	})
	counts(three, dropped("destination"), 1, func() {
		sendUDP(t, one.node.Namespace, one.node.IPv4, tunnelOf(three.node.IPv4), forged(friend.ipv4))
	})
	counts(two, dropped("network"), 1, func() {
		other := forged(friend.ipv4)
		other[6]++
		sendUDP(t, one.node.Namespace, one.node.IPv4, tunnelOf(two.node.IPv4), other)
	})
	sendUDP(t, friend.Namespace, netip.Addr{}, at, []byte("honest"))
	buf := make([]byte, 100)
	_ = inbox.SetReadDeadline(time.Now().Add(testutil.Patience))
	if n, err := inbox.Read(buf); err != nil || string(buf[:n]) != "honest" {
		t.Errorf("the pod received %q, %v, want what is honest", buf[:n], err)
	}
	// The port is one like any other between pods.
	nested := net.UDPAddrFromAddrPort(netip.AddrPortFrom(victim.ipv4, 8472))
	var server *net.UDPConn
	err := victim.Do(func() (err error) { server, err = net.ListenUDP("udp", nested); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	sendUDP(t, friend.Namespace, netip.Addr{}, nested.AddrPort(), []byte("nested"))
	_ = server.SetReadDeadline(time.Now().Add(testutil.Patience))
	if n, err := server.Read(buf); err != nil || string(buf[:n]) != "nested" {
		t.Errorf("a pod received %q, %v from another at the port of tunnels", buf[:n], err)
	}
	if status := two.status().Network.Tunnel; status == nil || status.Dropped["source"] != 2 || status.Error != "" {
		t.Errorf("status of the tunnel: %+v", status)
	}
}

// nodePortsTo has UDP ports of the node lead where they say, as kube-proxy's rules for node ports do: by the node's own
// address.
func nodePortsTo(t *testing.T, n *testutil.Node, ports map[uint16]netip.AddrPort) {
	t.Helper()
	rules := "table inet node-ports {\nchain services { type nat hook prerouting priority -100\n"
	for port, to := range ports {
		family, own := "ip", n.IPv4
		if to.Addr().Is6() {
			family, own = "ip6", n.IPv6
		}
		rules += fmt.Sprintf("%s daddr %s udp dport %d meta mark set %s dnat %s to %s\n", family, own, port, masqueradeMark, family, to)
	}
	onNode(t, n, rules+"}\nchain masquerading { type nat hook postrouting priority 100; meta mark "+masqueradeMark+" masquerade\n}\n}\n", "nft", "-f", "-")
}

// TestVXLANForgedByNodePort has packets of tunnels reach the port of a node by the node port of a Service, whose
// backend is a node: as the node masquerades them, they would come from the address of a node.
func TestVXLANForgedByNodePort(t *testing.T) {
	t.Parallel()
	c := newTunnels(t, 3)
	one, two, three := c.nodes[0], c.nodes[1], c.nodes[2]
	friend, victim, evil, other := one.pod(), two.pod(), three.pod(), three.pod()
	c.waitForMesh([]pod{friend, victim, evil})
	const toOther, toOwn, toPod, toOtherDevice, toOwnDevice = 30001, 30002, 30003, 30004, 30005
	tunnel := func(addr netip.Addr) netip.AddrPort { return netip.AddrPortFrom(addr, 8472) }
	nodePortsTo(t, one.node, map[uint16]netip.AddrPort{toOther: tunnel(two.node.IPv4), toOwn: tunnel(one.node.IPv4), toPod: tunnel(friend.ipv4),
		toOtherDevice: tunnel(two.tunnelAddress(false)), toOwnDevice: tunnel(one.tunnelAddress(false))})
	inbox, own := listenUDP(t, victim.Namespace, victim.ipv4), listenUDP(t, friend.Namespace, friend.ipv4)
	nested, err := listenUDPAt(friend.party("friend"), tunnel(friend.ipv4))
	if err != nil {
		t.Fatal(err)
	}
	defer nested.Close()
	frame := func(src, dst pod, conn *net.UDPConn) []byte {
		return vxlanFrame(netip.AddrPortFrom(src.ipv4, 1), netip.AddrPortFrom(dst.ipv4, portOf(conn)), "forged")
	}
	const counter = "porin_node_tunnel_forged_total"
	before := one.metrics()[counter]
	toNode := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(one.node.IPv4, port) }
	// The second node would take the first one for the sender, and the first one the third.
	sendUDP(t, evil.Namespace, netip.Addr{}, toNode(toOther), frame(friend, victim, inbox))
	sendUDP(t, two.node.Fabric.Namespace, testutil.OutsideIPv4, toNode(toOther), frame(friend, victim, inbox))
	sendUDP(t, evil.Namespace, netip.Addr{}, toNode(toOwn), frame(other, friend, own))
	// So they would where it leads to the address of a tunnel device, which is in a block of pods.
	sendUDP(t, evil.Namespace, netip.Addr{}, toNode(toOtherDevice), frame(friend, victim, inbox))
	sendUDP(t, evil.Namespace, netip.Addr{}, toNode(toOwnDevice), frame(other, friend, own))
	testutil.Eventually(t, func() error {
		if now := one.metrics()[counter]; now != before+5 {
			return fmt.Errorf("dropped %v packets of tunnels, want 5", now-before)
		}
		return nil
	})
	nodePortsTo(t, two.node, map[uint16]netip.AddrPort{toOther: tunnel(one.node.IPv6)})
	before = two.metrics()[counter]
	sendUDP(t, evil.Namespace, netip.Addr{}, netip.AddrPortFrom(two.node.IPv6, toOther), frame(victim, friend, own))
	testutil.Eventually(t, func() error {
		if now := two.metrics()[counter]; now != before+1 {
			return fmt.Errorf("dropped %v packets of tunnels by IPv6, want 1", now-before)
		}
		return nil
	})
	sendUDP(t, evil.Namespace, netip.Addr{}, toNode(toPod), []byte("honest"))
	sendUDP(t, friend.Namespace, netip.Addr{}, netip.AddrPortFrom(victim.ipv4, portOf(inbox)), []byte("honest"))
	sendUDP(t, other.Namespace, netip.Addr{}, netip.AddrPortFrom(friend.ipv4, portOf(own)), []byte("honest"))
	for name, conn := range map[string]*net.UDPConn{"the pod of the other node": inbox, "the pod of the node": own, "the Service's pod at the port of tunnels": nested} {
		_ = conn.SetReadDeadline(time.Now().Add(testutil.Patience))
		buf := make([]byte, 100)
		if n, err := conn.Read(buf); err != nil || string(buf[:n]) != "honest" {
			t.Errorf("%s received %q, %v, want what is honest", name, buf[:n], err)
		}
	}
}
