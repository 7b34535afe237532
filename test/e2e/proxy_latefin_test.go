package e2e

import (
	"bufio"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// TestHTTPRulesLateFIN has a server, which alone has rules, close connections later than the kernel delays the
// acknowledgement of the client's end. Its FIN gets to the proxy's socket, which is in FIN-WAIT-2, and not to the
// client's pod, which would reset it; nothing waits for an acknowledgement.
func TestHTTPRulesLateFIN(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	n.forEachFamily(func(t *testing.T, six bool) {
		listener := n.b.Listen(t, n.b.at(six, webPort))
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				go func() {
					defer conn.Close()
					requests := bufio.NewReader(conn)
					for {
						if _, err := http.ReadRequest(requests); err != nil {
							time.Sleep(200 * time.Millisecond)
							return
						}
						fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone")
					}
				}()
			}
		}()
		n.ciliumPolicy("{endpointSelector: {matchLabels: {app: b}}, ingress: [{" + publicOnly + "}]}")
		for _, client := range []party{n.a, n.d} {
			before := resetsSent(t, client)
			for range 10 {
				if status, _, err := get(webClient(t, client.Namespace, false), n.b.at(six, webPort), "/public/x"); err != nil || status != http.StatusOK {
					t.Fatalf("%s: %d, %v", client.name, status, err)
				}
			}
			testutil.Eventually(t, func() error {
				if open := openSockets(t, n.b); len(open) > 0 {
					return fmt.Errorf("connections of the server that are not closed: %q", open)
				}
				return nil
			})
			if sent := resetsSent(t, client) - before; sent > 0 {
				t.Errorf("%s has sent %d resets", client.name, sent)
			}
		}
	})
}

// resetsSent is the counter OutRsts of a pod (RFC 4022).
func resetsSent(t *testing.T, p party) (n int) {
	t.Helper()
	for name, value := range tcpCounters(t, p) {
		if name == "OutRsts" {
			_, _ = fmt.Sscan(value, &n)
		}
	}
	return n
}

func tcpCounters(t *testing.T, p party) map[string]string {
	t.Helper()
	var text []byte
	if err := p.Do(func() (err error) { text, err = os.ReadFile("/proc/thread-self/net/snmp"); return err }); err != nil {
		t.Fatal(err)
	}
	counters := map[string]string{}
	var names []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "Tcp:" {
			for i := range names {
				counters[names[i]] = fields[i]
			}
			names = fields
		}
	}
	return counters
}

// openSockets has the lines of the pod's TCP sockets that are neither listening nor in TIME-WAIT.
func openSockets(t *testing.T, p party) (open []string) {
	t.Helper()
	const timeWait, listening = "06", "0A"
	for _, file := range []string{"tcp", "tcp6"} {
		var text []byte
		if err := p.Do(func() (err error) { text, err = os.ReadFile("/proc/thread-self/net/" + file); return err }); err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			if fields := strings.Fields(line); i > 0 && fields[3] != timeWait && fields[3] != listening {
				open = append(open, line)
			}
		}
	}
	return open
}
