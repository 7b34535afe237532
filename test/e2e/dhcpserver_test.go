package e2e

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// dhcpServer serves every link of a node: an address for each container's MAC, from 10.202.0.10 on (RFC 2131).
type dhcpServer struct {
	conn     *net.UDPConn
	id       netip.Addr
	lifetime time.Duration
	running  sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	mute   bool
	leases map[string]netip.Addr // by MAC
	seen   map[string]int        // messages, by kind
}

func startDHCPServer(t *testing.T, node *testutil.Node, lifetime time.Duration) *dhcpServer {
	t.Helper()
	s := &dhcpServer{id: node.IPv4, lifetime: lifetime, leases: map[string]netip.Addr{}, seen: map[string]int{}}
	err := node.Do(func() (err error) {
		s.conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: 67})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := s.conn.SyscallConn()
	if err == nil {
		ctlErr := raw.Control(func(fd uintptr) {
			err = errors.Join(
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1), unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1),
			)
		})
		err = errors.Join(err, ctlErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.running.Go(func() { s.serve(t) })
	t.Cleanup(func() {
		_ = s.conn.Close()
		s.running.Wait()
	})
	return s
}

func (s *dhcpServer) serve(t *testing.T) {
	packet, control := make([]byte, 2048), make([]byte, 128)
	for {
		n, c, _, _, err := s.conn.ReadMsgUDP(packet, control)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var request layers.DHCPv4
		if err := errors.Join(err, request.DecodeFromBytes(packet[:n], gopacket.NilDecodeFeedback)); err != nil {
			t.Errorf("a message to the DHCP server: %v", err)
			continue
		}
		if reply, ok := s.answer(&request); ok {
			// An error is a link that has gone, of which the client says more.
			_ = s.send(reply, linkOf(control[:c]))
		}
	}
}

// linkOf reads by which link a message came.
func linkOf(control []byte) (index uint32) {
	messages, _ := unix.ParseSocketControlMessage(control)
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO {
			index = binary.NativeEndian.Uint32(m.Data)
		}
	}
	return index
}

func (s *dhcpServer) answer(request *layers.DHCPv4) (_ *layers.DHCPv4, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var kind, answer layers.DHCPMsgType
	for _, o := range request.Options {
		if o.Type == layers.DHCPOptMessageType && len(o.Data) == 1 {
			kind = layers.DHCPMsgType(o.Data[0])
		}
	}
	switch kind {
	case layers.DHCPMsgTypeDiscover:
		s.seen["discover"]++
		answer = layers.DHCPMsgTypeOffer
	case layers.DHCPMsgTypeRequest:
		if answer = layers.DHCPMsgTypeAck; request.ClientIP.IsUnspecified() {
			s.seen["request"]++
		} else {
			s.seen["renew"]++
		}
	default:
		s.seen[kind.String()]++
		return nil, false
	}
	return s.reply(request, answer), !s.mute
}

// reply is called with the lock held.
func (s *dhcpServer) reply(request *layers.DHCPv4, kind layers.DHCPMsgType) *layers.DHCPv4 {
	mac := request.ClientHWAddr.String()
	if !s.leases[mac].IsValid() {
		s.leases[mac] = netip.AddrFrom4([4]byte{10, 202, 0, byte(10 + len(s.leases))})
	}
	option := func(typ layers.DHCPOpt, data ...byte) layers.DHCPOption { return layers.NewDHCPOption(typ, data) }
	lifetime := binary.BigEndian.AppendUint32(nil, uint32(s.lifetime.Seconds()))
	return &layers.DHCPv4{
		Operation: layers.DHCPOpReply, HardwareType: layers.LinkTypeEthernet, HardwareLen: 6, Xid: request.Xid, Flags: request.Flags,
		ClientIP: request.ClientIP, YourClientIP: s.leases[mac].AsSlice(), ClientHWAddr: request.ClientHWAddr,
		Options: layers.DHCPOptions{
			option(layers.DHCPOptMessageType, byte(kind)), option(layers.DHCPOptServerID, s.id.AsSlice()...),
			option(layers.DHCPOptLeaseTime, lifetime...), option(layers.DHCPOptSubnetMask, 255, 255, 255, 0),
			option(layers.DHCPOptRouter, 10, 202, 0, 1), option(layers.DHCPOptEnd),
		},
	}
}

// send broadcasts a message on a link.
func (s *dhcpServer) send(reply *layers.DHCPv4, link uint32) error {
	buf := gopacket.NewSerializeBuffer()
	if err := reply.SerializeTo(buf, gopacket.SerializeOptions{FixLengths: true}); err != nil {
		return err
	}
	by := unix.PktInfo4(&unix.Inet4Pktinfo{Ifindex: int32(link)})
	_, _, err := s.conn.WriteMsgUDP(buf.Bytes(), by, &net.UDPAddr{IP: net.IPv4bcast, Port: 68})
	return err
}

// heard is how many messages of a kind have come: discover, request, renew, or the name that gopacket gives it.
func (s *dhcpServer) heard(kind string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen[kind]
}

// answers has it answer, or not.
func (s *dhcpServer) answers(does bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mute = !does
}
