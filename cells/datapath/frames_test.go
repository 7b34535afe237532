package datapath_test

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
)

// send puts a frame on the pod's link as it is, by a packet socket.
func (p *pod) send(t *testing.T, frame []byte) {
	t.Helper()
	eth0 := p.Link(t, "eth0").Attrs()
	must(t, p.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: eth0.Index})
	}))
}

// datagram is a UDP frame from a to b with size bytes of payload, through layers between the link and IPv4.
func datagram(t *testing.T, a, b *pod, typ layers.EthernetType, size int, between ...gopacket.SerializableLayer) []byte {
	t.Helper()
	from, to := a.endpoint, b.endpoint.Addresses.IPv4
	ip := &layers.IPv4{
		Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP,
		SrcIP: a.endpoint.Addresses.IPv4.AsSlice(), DstIP: to.AsSlice(),
	}
	udp := &layers.UDP{SrcPort: 1024, DstPort: 4711}
	must(t, udp.SetNetworkLayerForChecksum(ip))
	all := []gopacket.SerializableLayer{
		&layers.Ethernet{SrcMAC: from.Container.MAC[:], DstMAC: from.Host.MAC[:], EthernetType: typ},
	}
	all = append(all, between...)
	all = append(all, ip, udp, gopacket.Payload(bytes.Repeat([]byte{'x'}, size)))
	buf := gopacket.NewSerializeBuffer()
	must(t, gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, all...))
	return buf.Bytes()
}

// These are frames that a test run of a program cannot have: the kernel's own receive path makes them what they are.
func TestFramesOnLink(t *testing.T) {
	n := newNode(t)
	n.mtu = 9000
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	whole := datagram(t, a, b, layers.EthernetTypeIPv4, 100)
	tagged := datagram(t, a, b, layers.EthernetTypeDot1Q, 100, &layers.Dot1Q{Type: layers.EthernetTypeIPv4})
	rows := []struct {
		name  string
		frame []byte
		drop  abi.DropReason
	}{
		{"a whole packet", whole, abi.DropNone},
		{"headers that are not in the linear part", datagram(t, a, b, layers.EthernetTypeIPv4, 8000), abi.DropNone},
		{"half a header", whole[:30], abi.DropMalformed},
		{"a VLAN tag that the kernel takes off before", tagged, abi.DropProtocol},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			before := n.traffic(t, a)
			a.send(t, row.frame)
			after := n.traffic(t, a)
			if row.drop == abi.DropNone {
				if got := after.FromPod.Bytes - before.FromPod.Bytes; got != uint64(len(row.frame)) {
					t.Errorf("%d bytes passed, want %d; %+v", got, len(row.frame), after)
				}
				return
			}
			if got := after.Drops[row.drop] - before.Drops[row.drop]; got != 1 {
				t.Errorf("%d drops for %s, want 1; %+v", got, row.drop, after)
			}
		})
	}
	if got, want := n.traffic(t, b).ToPod.Packets, uint64(2); got < want {
		t.Errorf("%d packets were delivered, want %d", got, want)
	}
}

func (n *node) traffic(t *testing.T, p *pod) abi.Traffic {
	t.Helper()
	counted, err := n.datapath.Counters().Traffic(p.endpoint.ID)
	must(t, err)
	return counted
}
