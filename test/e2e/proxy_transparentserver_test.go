package e2e

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// greeting is what servers of the tests below send.
const greeting = "hello"

// greet has a server of another program on the node, with a transparent socket (IP_TRANSPARENT), as other proxies have,
// or an ordinary one.
func greet(t *testing.T, node party, at netip.AddrPort, transparent bool) {
	t.Helper()
	config := net.ListenConfig{Control: func(network, _ string, c syscall.RawConn) error {
		var err error
		controlErr := c.Control(func(fd uintptr) {
			level, option := unix.SOL_IP, unix.IP_TRANSPARENT
			if network == "tcp6" {
				level, option = unix.SOL_IPV6, unix.IPV6_TRANSPARENT
			}
			if transparent {
				err = unix.SetsockoptInt(int(fd), level, option, 1)
			}
		})
		return errors.Join(controlErr, err)
	}}
	var listener net.Listener
	if err := node.Do(func() (err error) {
		listener, err = config.Listen(context.Background(), "tcp", at.String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, greeting)
			conn.Close()
		}
	}()
	t.Cleanup(func() { listener.Close(); <-served })
}

// isGreeted reports nil when the client gets to the server within a second.
func isGreeted(client party, server netip.AddrPort) error {
	conn, err := client.Dial(server, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, len(greeting)))
	return err
}

// TestHTTPRulesTransparentServer has servers of another program on the node, with transparent sockets and without.
// Neither a pod whose policy denies it gets to them, not even its SYN, nor the outside past a host firewall that lets
// in what docs/policy-troubleshooting.md says.
func TestHTTPRulesTransparentServer(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	ports := map[bool]uint16{false: 9000, true: 9001}
	n.forEachFamily(func(t *testing.T, six bool) {
		for transparent, port := range ports {
			greet(t, n.node1, n.node1.at(six, port), transparent)
			for _, client := range []party{n.a, n.outside} {
				if err := isGreeted(client, n.node1.at(six, port)); err != nil {
					t.Fatalf("%s, transparent %v, without policies: %v", client.name, transparent, err)
				}
			}
		}
		n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{toEndpoints: [{}], " + publicOnly + "}]}")
		n.nft(t, `table inet filter {
			chain input {
				type filter hook input priority 0; policy drop;
				iifname "lo" accept
				ct state established,related accept
				meta l4proto icmpv6 accept
				meta mark and 0xfff == 0xa8 accept
				iifname "porin-l7" accept
				ip saddr 10.100.0.0/16 accept
				ip6 saddr fd00:10::/32 accept
			}
			chain counted {
				type filter hook input priority 10;
				tcp dport 9000-9001 counter
			}
		}`)
		for transparent, port := range ports {
			for _, client := range []party{n.a, n.outside} {
				if err := isGreeted(client, n.node1.at(six, port)); err == nil {
					t.Errorf("%s gets to the server, transparent %v", client.name, transparent)
				}
			}
		}
		if counted := n.nft(t, "list chain inet filter counted"); !strings.Contains(counted, "counter packets 0 ") {
			t.Errorf("packets have got to the servers: %s", counted)
		}
		n.nft(t, "delete table inet filter")
		n.ciliumPolicy(noRules)
	})
}

// nft runs the program on the first node.
func (n *serviceNodes) nft(t *testing.T, text string) string {
	t.Helper()
	var out []byte
	testutil.NeedPrograms(t, "nft")
	if err := n.node1.Do(func() (err error) { out, err = exec.Command("nft", text).CombinedOutput(); return err }); err != nil {
		t.Fatalf("nft %s: %v: %s", text, err, out)
	}
	return string(out)
}
