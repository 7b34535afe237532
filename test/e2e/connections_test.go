package e2e

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// TestAnAddressOfWhichAConnectionIsTrackedIsGivenToNobody: the next container would get the packets that somebody still
// sends to the last one, and would be taken for it.
func TestAnAddressOfWhichAConnectionIsTrackedIsGivenToNobody(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	trackConnections(t, node)
	r := rigOn(t, node, "--ipam-pod-cidr=10.9.0.0/30", "--ipam-quarantine=1s") // one address
	p := r.pod()
	if err := testutil.RoundTrip(p.Namespace, node.Echo(t, node.IPv4), reach); err != nil {
		t.Fatal(err)
	}
	r.cni.MustDel(t, p.Container)

	next := testutil.NewContainer(t)
	r.stillNamed(next)
	r.agent.Restart(t) // it asks anew
	r.stillNamed(next)
	forgetConnections(t, node)
	if got := r.add(next); got.ipv4 != p.ipv4 {
		t.Errorf("the next container got %s, want %s", got.ipv4, p.ipv4)
	}
}

// stillNamed waits until the one address has rested, and is refused all the same.
func (r *rig) stillNamed(c *testutil.Container) {
	r.Helper()
	testutil.Eventually(r, reach, func() error {
		_, err := r.cni.Add(c)
		if err == nil || !strings.Contains(err.Error(), "1 in quarantine; connections still name some that have rested") {
			return fmt.Errorf("ADD: %v", err)
		}
		return nil
	})
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

// forgetConnections is the end of them all.
func forgetConnections(t *testing.T, node *testutil.Node) {
	t.Helper()
	const deleteConnection = 2 // IPCTNL_MSG_CT_DELETE
	nfCall(t, node, nfMessage(unix.NFNL_SUBSYS_CTNETLINK<<8|deleteConnection, unix.NLM_F_ACK, unix.AF_UNSPEC, nil), 1)
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
