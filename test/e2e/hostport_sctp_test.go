package e2e

import (
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// TestHostPortSCTP opens an association by hand, as many kernels have no sockets for it: INIT there, and INIT ACK back.
func TestHostPortSCTP(t *testing.T) {
	n := newHostPortNode(t)
	p := n.add(withPorts(t, "web", "sctp 8090"))
	n.forEachFamilyOf(func(t *testing.T, six bool) {
		const clientPort = 5000
		client, server := openSCTP(t, n.outside.Namespace, six), openSCTP(t, p.Namespace, six)
		client.send(n.itself.addr(six), &layers.SCTP{SrcPort: clientPort, DstPort: hostPort}, layers.SCTPChunkTypeInit)
		if header := server.receive(backendPort); header.SrcPort != clientPort {
			t.Errorf("the pod sees source port %d, want %d", header.SrcPort, clientPort)
		}
		server.send(n.outside.addr(six), &layers.SCTP{SrcPort: backendPort, DstPort: clientPort, VerificationTag: initiateTag}, layers.SCTPChunkTypeInitAck)
		if header := client.receive(clientPort); header.SrcPort != hostPort {
			t.Errorf("the answer comes from port %d, want %d", header.SrcPort, hostPort)
		}
	})
}

const initiateTag = 0x1234

// sctp is a raw socket.
type sctp struct {
	t   *testing.T
	fd  int
	six bool
}

func openSCTP(t *testing.T, ns *testutil.Namespace, six bool) *sctp {
	t.Helper()
	s := &sctp{t: t, six: six}
	family := unix.AF_INET
	if six {
		family = unix.AF_INET6
	}
	err := ns.Do(func() (err error) {
		s.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(s.fd) })
	wait := unix.NsecToTimeval(int64(reach))
	if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *sctp) send(to netip.Addr, header *layers.SCTP, kind layers.SCTPChunkType) {
	s.t.Helper()
	buffer := gopacket.NewSerializeBuffer()
	chunk := &layers.SCTPInit{SCTPChunk: layers.SCTPChunk{Type: kind}, InitiateTag: initiateTag, AdvertisedReceiverWindowCredit: 1500, OutboundStreams: 1, InboundStreams: 1, InitialTSN: 1}
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, header, chunk); err != nil {
		s.t.Fatal(err)
	}
	var address unix.Sockaddr = &unix.SockaddrInet4{Addr: [4]byte(to.AsSlice()[:4])}
	if s.six {
		address = &unix.SockaddrInet6{Addr: to.As16()}
	}
	if err := unix.Sendto(s.fd, buffer.Bytes(), 0, address); err != nil {
		s.t.Fatal(err)
	}
}

// receive returns the header of the next packet to the port.
func (s *sctp) receive(port layers.SCTPPort) *layers.SCTP {
	s.t.Helper()
	buf := make([]byte, 1500)
	for {
		n, _, err := unix.Recvfrom(s.fd, buf, 0)
		if err != nil {
			s.t.Fatalf("no packet to port %d: %v", port, err)
		}
		packet := buf[:n]
		if !s.six {
			packet = packet[packet[0]&15*4:] // with the IP header
		}
		header := &layers.SCTP{}
		if err := header.DecodeFromBytes(packet, gopacket.NilDecodeFeedback); err == nil && header.DstPort == port {
			return header
		}
	}
}
