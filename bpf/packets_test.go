package bpf_test

import (
	"net"
	"net/netip"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// frame puts layers together, lengths and checksums included.
func frame(all ...gopacket.SerializableLayer) []byte {
	buf := gopacket.NewSerializeBuffer()
	opts := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opts, all...); err != nil {
		panic(err)
	}
	return buf.Bytes()
}

func ether(src, dst net.HardwareAddr, typ layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: src, DstMAC: dst, EthernetType: typ}
}

// hops is a TTL or hop limit.
type hops uint8

// udp is a datagram of either family, in a frame from a party to the other end of its link.
func udp(link party, src, dst netip.Addr, ttl hops) []byte {
	return udpFrom(link.mac, link.hostMAC, src, dst, ttl)
}

func udpFrom(srcMAC, dstMAC net.HardwareAddr, src, dst netip.Addr, ttl hops) []byte {
	datagram := &layers.UDP{SrcPort: 1024, DstPort: 53}
	payload := gopacket.Payload("payload")
	if src.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: uint8(ttl), Protocol: layers.IPProtocolUDP, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
		_ = datagram.SetNetworkLayerForChecksum(ip)
		return frame(ether(srcMAC, dstMAC, layers.EthernetTypeIPv4), ip, datagram, payload)
	}
	ip := &layers.IPv6{Version: 6, HopLimit: uint8(ttl), NextHeader: layers.IPProtocolUDP, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	_ = datagram.SetNetworkLayerForChecksum(ip)
	return frame(ether(srcMAC, dstMAC, layers.EthernetTypeIPv6), ip, datagram, payload)
}

// broadcastUDP is a datagram of IPv4 between two ports, to all hosts on the link.
func broadcastUDP(link party, src, dst netip.Addr, from, to layers.UDPPort) []byte {
	datagram := &layers.UDP{SrcPort: from, DstPort: to}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	_ = datagram.SetNetworkLayerForChecksum(ip)
	return frame(ether(link.mac, layers.EthernetBroadcast, layers.EthernetTypeIPv4), ip, datagram, gopacket.Payload("payload"))
}

// icmp is an echo request of either family.
func icmp(link party, src, dst netip.Addr) []byte {
	if src.Is4() {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolICMPv4, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
		echo := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 1, Seq: 1}
		return frame(ether(link.mac, link.hostMAC, layers.EthernetTypeIPv4), ip, echo)
	}
	return icmp6(link, src, dst, layers.ICMPv6TypeEchoRequest)
}

func icmp6(link party, src, dst netip.Addr, typ uint8) []byte {
	ip := &layers.IPv6{Version: 6, HopLimit: 255, NextHeader: layers.IPProtocolICMPv6, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}
	message := &layers.ICMPv6{TypeCode: layers.CreateICMPv6TypeCode(typ, 0)}
	_ = message.SetNetworkLayerForChecksum(ip)
	return frame(ether(link.mac, link.hostMAC, layers.EthernetTypeIPv6), ip, message, gopacket.Payload(make([]byte, 24)))
}

func arp(link party, target netip.Addr) []byte {
	return frame(ether(link.mac, layers.EthernetBroadcast, layers.EthernetTypeARP), &layers.ARP{
		AddrType: layers.LinkTypeEthernet, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
		Operation: layers.ARPRequest, SourceHwAddress: link.mac, SourceProtAddress: link.ip4.AsSlice(),
		DstHwAddress: make([]byte, 6), DstProtAddress: target.AsSlice(),
	})
}

// routerAlert is an IPv4 packet with options (RFC 2113).
func routerAlert(link party, dst netip.Addr) []byte {
	return frame(ether(link.mac, link.hostMAC, layers.EthernetTypeIPv4), &layers.IPv4{
		Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: link.ip4.AsSlice(), DstIP: dst.AsSlice(),
		Options: []layers.IPv4Option{{OptionType: 148, OptionLength: 4, OptionData: []byte{0, 0}}},
	}, gopacket.Payload("payload"))
}

// hopByHop is an IPv6 packet with a header that routers read (RFC 8200, section 4.3).
func hopByHop(link party, dst netip.Addr) []byte {
	return frame(ether(link.mac, link.hostMAC, layers.EthernetTypeIPv6), &layers.IPv6{
		Version: 6, HopLimit: 64, NextHeader: 0, SrcIP: link.ip6.AsSlice(), DstIP: dst.AsSlice(),
	}, gopacket.Payload([]byte{59, 0, 1, 4, 0, 0, 0, 0})) // no next header; PadN
}

// mangle changes bytes of a frame.
func mangle(frame []byte, offset int, bytes ...byte) []byte {
	copy(frame[offset:], bytes)
	return frame
}

// segment is a TCP segment without data.
func segment(srcMAC, dstMAC []byte, src, dst netip.AddrPort, flags func(*layers.TCP)) []byte {
	tcp := &layers.TCP{SrcPort: layers.TCPPort(src.Port()), DstPort: layers.TCPPort(dst.Port()), Window: 1000}
	flags(tcp)
	network, typ := network(src.Addr(), dst.Addr(), layers.IPProtocolTCP)
	_ = tcp.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer))
	return frame(ether(srcMAC, dstMAC, typ), network, tcp)
}

func network(src, dst netip.Addr, protocol layers.IPProtocol) (gopacket.SerializableLayer, layers.EthernetType) {
	if src.Is4() {
		return &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}, layers.EthernetTypeIPv4
	}
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: src.AsSlice(), DstIP: dst.AsSlice()}, layers.EthernetTypeIPv6
}

func syn(t *layers.TCP)      { t.SYN = true }
func synACK(t *layers.TCP)   { t.SYN, t.ACK = true, true }
func ack(t *layers.TCP)      { t.ACK = true }
func fin(t *layers.TCP)      { t.FIN, t.ACK = true, true }
func rst(t *layers.TCP)      { t.RST = true }
func datagram(t *layers.TCP) {} // stands for UDP

// udpSegment is a UDP datagram without data.
func udpSegment(srcMAC, dstMAC []byte, src, dst netip.AddrPort) []byte {
	udp := &layers.UDP{SrcPort: layers.UDPPort(src.Port()), DstPort: layers.UDPPort(dst.Port())}
	network, typ := network(src.Addr(), dst.Addr(), layers.IPProtocolUDP)
	_ = udp.SetNetworkLayerForChecksum(network.(gopacket.NetworkLayer))
	return frame(ether(srcMAC, dstMAC, typ), network, udp)
}
