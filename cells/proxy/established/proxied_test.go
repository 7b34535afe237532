package established

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// TestProxySockets tells connections of a socket with the proxy's mark from others, also when the thread that asks is in another namespace.
func TestProxySockets(t *testing.T) {
	node := testutil.NetNS(t)
	if err := node.Do(exec.Command("sh", "-c", "ip link set lo up; ip addr add 192.0.2.1/32 dev lo; ip addr add 2001:db8::1/128 dev lo nodad").Run); err != nil {
		t.Fatal(err)
	}
	var proxy *proxySockets
	if err := node.Do(func() (err error) { proxy, err = openProxySockets(); return err }); err != nil {
		t.Fatal(err)
	}
	defer proxy.close()
	for _, address := range []string{"192.0.2.1", "2001:db8::1"} {
		for mark, want := range map[int]bool{abi.ProxyMark: true, abi.ProxyMark | 1<<16: true, abi.ProxyDivertMark: false, 0: false} {
			listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
				var err error
				_ = c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) })
				return err
			}}
			var listener net.Listener
			err := node.Do(func() (err error) {
				listener, err = listen.Listen(context.Background(), "tcp", netip.AddrPortFrom(netip.MustParseAddr(address), 0).String())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
			server := netip.MustParseAddrPort(listener.Addr().String())
			var conn net.Conn
			testutil.Eventually(t, func() (err error) { // the kernel adds the route of an address a moment later
				conn, err = node.Dial(server, 5*time.Second)
				return err
			})
			defer conn.Close()
			accepted, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer accepted.Close()
			client := netip.MustParseAddrPort(conn.LocalAddr().String())
			if has, err := proxy.has(server, client); has != want || err != nil {
				t.Errorf("%s, mark %#x: %v, %v, want %v", server, mark, has, err, want)
			}
			if has, err := proxy.has(client, server); has || err != nil {
				t.Errorf("%s, mark %#x: its client's socket: %v, %v", server, mark, has, err)
			}
			if want {
				accepted.Close()
				conn.Close()
				testutil.Eventually(t, func() error {
					if has, err := proxy.has(server, client); has || err != nil {
						return fmt.Errorf("%s: in TIME-WAIT: %v, %w", server, has, err)
					}
					return nil
				})
			}
			if has, err := proxy.has(server, netip.AddrPortFrom(client.Addr(), client.Port()^1)); has || err != nil {
				t.Errorf("%s, mark %#x: one that is not there: %v, %v", server, mark, has, err)
			}
		}
	}
}
