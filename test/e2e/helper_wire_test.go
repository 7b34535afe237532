package e2e

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// wire is a packet socket on a container's eth0: it sends any frame, and sees every frame that comes in.
type wire struct {
	t        *testing.T
	fd       int
	pod, gw  net.HardwareAddr // of both ends
	link     unix.SockaddrLinklayer
	received []byte
}

func (r *rig) wire(p pod) *wire {
	r.Helper()
	ep, err := r.api.Endpoint(context.Background(), "container-id:"+p.ID)
	if err != nil {
		r.Fatal(err)
	}
	w := &wire{t: r.T, received: make([]byte, 1<<16)}
	w.pod = ep.Container.MAC[:]
	w.gw = ep.Host.MAC[:]
	w.link = unix.SockaddrLinklayer{Ifindex: p.Link(r, p.IfName).Attrs().Index, Protocol: htons(unix.ETH_P_ALL)}
	w.open(p.Namespace)
	return w
}

func (w *wire) open(ns *testutil.Namespace) {
	w.t.Helper()
	err := ns.Do(func() (err error) {
		w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = unix.Close(w.fd) })
	wait := unix.NsecToTimeval(int64(reach))
	if err := unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		w.t.Fatal(err)
	}
	if err := unix.Bind(w.fd, &w.link); err != nil {
		w.t.Fatal(err)
	}
}

func htons(n uint16) uint16 { return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n)) }

// send puts a frame on the wire as it is.
func (w *wire) send(frame []byte) {
	w.t.Helper()
	if err := unix.Sendto(w.fd, frame, 0, &w.link); err != nil {
		w.t.Fatalf("send a frame of %d bytes: %v", len(frame), err)
	}
}

// incoming returns the next frame that the container gets, which is good until the next call, or nil after the time.
func (w *wire) incoming() []byte {
	w.t.Helper()
	for deadline := time.Now().Add(reach); time.Now().Before(deadline); {
		n, from, err := unix.Recvfrom(w.fd, w.received, 0)
		if err != nil {
			return nil
		}
		if from, ok := from.(*unix.SockaddrLinklayer); ok && from.Pkttype != unix.PACKET_OUTGOING {
			return w.received[:n]
		}
	}
	return nil
}

// until returns the first incoming frame that match wants, and how many came before it.
func (w *wire) until(match func(gopacket.Packet) bool) (found gopacket.Packet, others int) {
	w.t.Helper()
	for frame := w.incoming(); frame != nil; frame = w.incoming() {
		packet := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.Default)
		if match(packet) {
			return packet, others
		}
		others++
	}
	w.t.Fatalf("the frame did not come; %d others did", others)
	return nil, 0
}

// frame serializes layers with their lengths and checksums.
func (w *wire) frame(all ...gopacket.SerializableLayer) []byte {
	w.t.Helper()
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...); err != nil {
		w.t.Fatal(err)
	}
	return buffer.Bytes()
}

// eth is the header of what the container sends to its gateway, less the type.
func (w *wire) eth(kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: w.pod, DstMAC: w.gw, EthernetType: kind}
}

func ip4(from, to netip.Addr, protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
}

func ip6(from, to netip.Addr, protocol layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: protocol, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
}

// udp returns header and payload of a datagram over ip.
func udp(ip gopacket.NetworkLayer, payload string) []gopacket.SerializableLayer {
	header := &layers.UDP{SrcPort: 7, DstPort: 9}
	_ = header.SetNetworkLayerForChecksum(ip)
	return []gopacket.SerializableLayer{header, gopacket.Payload(payload)}
}

func (w *wire) udp4(from, to netip.Addr, payload string) []byte {
	ip := ip4(from, to, layers.IPProtocolUDP)
	return w.frame(append([]gopacket.SerializableLayer{w.eth(layers.EthernetTypeIPv4), ip}, udp(ip, payload)...)...)
}

func (w *wire) udp6(from, to netip.Addr, payload string) []byte {
	ip := ip6(from, to, layers.IPProtocolUDP)
	return w.frame(append([]gopacket.SerializableLayer{w.eth(layers.EthernetTypeIPv6), ip}, udp(ip, payload)...)...)
}

// carries finds the datagram with the payload.
func carries(payload string) func(gopacket.Packet) bool {
	return func(p gopacket.Packet) bool {
		app := p.ApplicationLayer()
		return app != nil && string(app.Payload()) == payload
	}
}

// strayReset is a TCP reset of no connection.
func (w *wire) strayReset(from, to netip.Addr) []byte {
	tcp := &layers.TCP{SrcPort: 7, DstPort: 9, RST: true}
	if from.Is6() {
		ip := ip6(from, to, layers.IPProtocolTCP)
		_ = tcp.SetNetworkLayerForChecksum(ip)
		return w.frame(w.eth(layers.EthernetTypeIPv6), ip, tcp)
	}
	ip := ip4(from, to, layers.IPProtocolTCP)
	_ = tcp.SetNetworkLayerForChecksum(ip)
	return w.frame(w.eth(layers.EthernetTypeIPv4), ip, tcp)
}
