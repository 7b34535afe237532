package e2e

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"
)

// openCase is a connection that gets layer 7 rules while it is open.
type openCase struct {
	name   string
	from   party
	to     netip.AddrPort
	closed bool
}

// occupy has a process in the party's namespace, as every pod has.
func occupy(t *testing.T, p party) {
	t.Helper()
	process := exec.Command("sleep", "600")
	if err := p.Do(process.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
}

// waitsFor reports what a client gets that only waits: nil when nothing has come in the time.
func waitsFor(t *testing.T, conn net.Conn, within time.Duration) error {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	_, err := conn.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// TestOpenConnections has connections that wait for data when layer 7 rules come: those that the rules are for are closed at once, others are not.
func TestOpenConnections(t *testing.T) {
	for _, keep := range []bool{false, true} {
		var flags []string
		if keep {
			flags = append(flags, "--proxy-open-connections=keep")
		}
		t.Run(map[bool]string{false: "close", true: "keep"}[keep], func(t *testing.T) {
			n := newServiceNodes(t, nftablesMode{}, flags...)
			n.label()
			for _, p := range []party{n.a, n.b, n.d} {
				serveWeb(t, p)
				occupy(t, p)
			}
			n.forEachFamily(func(t *testing.T, six bool) {
				for spec, cases := range map[string][]openCase{
					"{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}, {toPorts: [{ports: [{port: '8080'}]}]}]}": {
						{"a to b", n.a, n.b.at(six, webPort), true},
						{"a to b by a Service", n.a, n.at(web, six), true},
						{"a to the other node's pod", n.a, n.d.at(six, webPort), true},
						{"a to the other node's pod by a Service", n.a, n.at(remoteWeb, six), true},
						{"a to a port without rules", n.a, n.b.at(six, backendPort), false},
						{"another pod", n.c, n.b.at(six, webPort), false},
						{"to a", n.c, n.a.at(six, webPort), false},
					},
					"{endpointSelector: {matchLabels: {app: b}}, ingress: [{" + publicOnly + "}, {toPorts: [{ports: [{port: '8080'}]}]}]}": {
						{"a to b", n.a, n.b.at(six, webPort), true},
						{"a to b by a Service", n.a, n.at(web, six), true},
						{"the other node's pod to b", n.d, n.b.at(six, webPort), true},
						{"the node, which every pod accepts", n.node1, n.b.at(six, webPort), false},
						{"a port without rules", n.a, n.b.at(six, backendPort), false},
					},
				} {
					n.ciliumPolicy("{endpointSelector: {matchLabels: {app: nobody}}, ingress: [{}]}")
					var conns []net.Conn
					for _, c := range cases {
						conn, err := c.from.Dial(c.to, 5*time.Second)
						if err != nil {
							t.Fatal(err)
						}
						defer conn.Close()
						conns = append(conns, conn)
					}
					began := time.Now()
					n.ciliumPolicy(spec)
					took := time.Since(began)
					proxied, err := n.a.Dial(n.b.at(six, webPort), 5*time.Second)
					if err != nil {
						t.Fatal(err)
					}
					defer proxied.Close()
					for i, c := range cases {
						within := 200 * time.Millisecond
						if c.closed && !keep {
							within = 2 * time.Second
						}
						if err := waitsFor(t, conns[i], within); (err != nil) != (c.closed && !keep) {
							t.Errorf("IPv6 %v, %s: %v, want it closed: %v", six, c.name, err, c.closed && !keep)
						}
					}
					// What is open through the proxy stays when further rules come.
					n.ciliumPolicy("{endpointSelector: {}, ingress: [{" + publicOnly + "}], egress: [{" + publicOnly + "}]}")
					if err := waitsFor(t, proxied, 200*time.Millisecond); err != nil {
						t.Errorf("IPv6 %v: a connection through the proxy: %v", six, err)
					}
					t.Logf("IPv6 %v: the policy was in force after %v", six, took)
				}
			})
		})
	}
}
