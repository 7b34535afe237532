package e2e

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// TestDELDeletesConnections: a DEL removes the connections of the container's address that the node's kernel tracks,
// and no others.
func TestDELDeletesConnections(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	trackConnections(t, node)
	r := rigOn(t, node)
	p, other := r.pod(), r.pod()
	server4, server6 := node.Echo(t, node.IPv4), node.Echo(t, node.IPv6)
	for _, c := range []pod{p, other} {
		for _, server := range []netip.AddrPort{server4, server6} {
			if err := testutil.RoundTrip(c.Namespace, server, reach); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, addr := range []netip.Addr{p.ipv4, p.ipv6, other.ipv4, other.ipv6} {
		r.track(addr, uint16(40000+i))
	}
	if got := r.tracked(p.ipv4) + r.tracked(p.ipv6); got < 4 {
		t.Fatalf("%d connections of the container are tracked, want 4", got)
	}
	others := r.tracked(other.ipv4) + r.tracked(other.ipv6)
	r.cni.MustDel(t, p.Container)
	testutil.Eventually(t, func() error {
		if left := r.tracked(p.ipv4) + r.tracked(p.ipv6); left > 0 {
			return fmt.Errorf("%d connections of the container are tracked", left)
		}
		return nil
	})
	if got := r.tracked(other.ipv4) + r.tracked(other.ipv6); got != others {
		t.Errorf("of another container %d connections are tracked, want %d", got, others)
	}
}

// track makes the node's kernel track a connection with an address by way of a service.
func (r *rig) track(addr netip.Addr, port uint16) {
	r.Helper()
	family, client, service := netlink.InetFamily(unix.AF_INET), "198.51.100.7", "203.0.113.10"
	if addr.Is6() {
		family, client, service = unix.AF_INET6, "2001:db8::7", "2001:db8:1::10"
	}
	err := r.node.Do(func() error {
		return netlink.ConntrackCreate(netlink.ConntrackTable, family, &netlink.ConntrackFlow{
			FamilyType: uint8(family), TimeOut: 600,
			Forward: netlink.IPTuple{SrcIP: net.ParseIP(client), DstIP: net.ParseIP(service), Protocol: unix.IPPROTO_UDP, SrcPort: port, DstPort: 53},
			Reverse: netlink.IPTuple{SrcIP: addr.AsSlice(), DstIP: net.ParseIP(client), Protocol: unix.IPPROTO_UDP, SrcPort: 53, DstPort: port},
		})
	})
	if err != nil {
		r.Fatal(err)
	}
}

// tracked counts the connections that an address has begun, and the connections that it answers.
func (r *rig) tracked(addr netip.Addr) (n int) {
	r.Helper()
	family := netlink.InetFamily(unix.AF_INET)
	if addr.Is6() {
		family = unix.AF_INET6
	}
	err := r.node.Do(func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		for _, flow := range flows {
			if flow.Forward.SrcIP.Equal(addr.AsSlice()) || flow.Reverse.SrcIP.Equal(addr.AsSlice()) {
				n++
			}
		}
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return n
}

// trackConnections has the kernel track connections of the node, as any rule about them does.
func trackConnections(t *testing.T, node *testutil.Node) {
	t.Helper()
	const table, chain = "tracking\x00", "input\x00"
	state := append(nfAttr(1, be32(unix.NFT_REG_1)), nfAttr(2, be32(unix.NFT_CT_STATE))...)
	expression := nfAttr(1, append(nfAttr(1, []byte("ct\x00")), nfAttr(2, state)...))
	hook := append(nfAttr(1, be32(unix.NF_INET_LOCAL_IN)), nfAttr(2, be32(0))...)
	batch := nfMessage(unix.NFNL_MSG_BATCH_BEGIN, 0, unix.AF_UNSPEC, nil)
	batch = append(batch, nfTables(unix.NFT_MSG_NEWTABLE, nfAttr(1, []byte(table)))...)
	batch = append(batch, nfTables(unix.NFT_MSG_NEWCHAIN,
		nfAttr(1, []byte(table)), nfAttr(3, []byte(chain)), nfAttr(4, hook), nfAttr(7, []byte("filter\x00")))...)
	batch = append(batch, nfTables(unix.NFT_MSG_NEWRULE,
		nfAttr(1, []byte(table)), nfAttr(2, []byte(chain)), nfAttr(4, expression))...)
	batch = append(batch, nfMessage(unix.NFNL_MSG_BATCH_END, 0, unix.AF_UNSPEC, nil)...)
	nfCall(t, node, batch, 3)
}

// nfCall sends messages and expects so many acknowledgements.
func nfCall(t *testing.T, node *testutil.Node, messages []byte, acks int) {
	t.Helper()
	err := node.Do(func() error {
		fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		patience := unix.NsecToTimeval(int64(10 * time.Second))
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
			return err
		}
		if err := unix.Sendto(fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return err
		}
		buf := make([]byte, 4096)
		for range acks {
			n, _, err := unix.Recvfrom(fd, buf, 0)
			if err != nil || n < unix.SizeofNlMsghdr+4 {
				return fmt.Errorf("%d bytes, %w", n, err)
			}
			if errno := -int32(binary.NativeEndian.Uint32(buf[unix.SizeofNlMsghdr:])); errno != 0 {
				return unix.Errno(errno)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("netfilter: %v", err)
	}
}

func nfTables(kind uint16, attrs ...[]byte) []byte {
	var body []byte
	for _, attr := range attrs {
		body = append(body, attr...)
	}
	return nfMessage(unix.NFNL_SUBSYS_NFTABLES<<8|kind, unix.NLM_F_CREATE|unix.NLM_F_ACK, unix.NFPROTO_INET, body)
}

func nfMessage(kind, flags uint16, family byte, body []byte) []byte {
	msg := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+4+len(body)))
	msg = binary.NativeEndian.AppendUint16(msg, kind)
	msg = binary.NativeEndian.AppendUint16(msg, unix.NLM_F_REQUEST|flags)
	msg = append(msg, make([]byte, 8)...)                            // sequence, port
	msg = append(msg, family, 0, 0, byte(unix.NFNL_SUBSYS_NFTABLES)) // struct nfgenmsg; of a batch: whose it is
	return append(msg, body...)
}

func nfAttr(kind uint16, value []byte) []byte {
	attr := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	attr = append(binary.NativeEndian.AppendUint16(attr, kind), value...)
	return append(attr, make([]byte, -len(value)&3)...)
}

func be32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
