package e2e

import (
	"errors"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// rulesForB are layer 7 rules for the clients of b.
const rulesForB = "{endpointSelector: {matchLabels: {app: b}}, ingress: [{" + publicOnly + "}]}"

// TestHTTPRulesClientGone: a client's reset is lost before its first request. The proxy's socket, which would get the
// packets of the client's next connection with the same ports, is gone soon.
func TestHTTPRulesClientGone(t *testing.T) {
	t.Parallel()
	testutil.NeedPrograms(t, "nft", "ss")
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	n.ciliumPolicy(rulesForB)
	inA := func(command string, args ...string) string {
		t.Helper()
		out, err := exec.Command("nsenter", append([]string{"--net=" + n.a.Path(), command}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %q: %v: %s", command, args, err, out)
		}
		return string(out)
	}
	for port, idle := range map[string]time.Duration{"42000": 0, "42001": 2 * time.Second} { // 2 s: the kernel has asked, and was answered
		conn, err := dialFrom(n.a, netip.MustParseAddrPort(n.a.addr(false).String()+":"+port), n.b.at(false, webPort))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		proxied := func() string {
			out, err := exec.Command("nsenter", "--net="+n.node1.Path(), "ss", "-tanH", "dport", "=", ":"+port).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return string(out)
		}
		if !strings.Contains(proxied(), "ESTAB") {
			t.Fatalf("no socket of the proxy's: %q", proxied())
		}
		time.Sleep(idle)
		inA("nft", "add table inet lost { chain out { type filter hook output priority 0; tcp flags rst limit rate 1/hour burst 1 packets drop; }; }") // the first one
		inA("ss", "-KtH", "sport", "=", ":"+port)
		if err := testutil.Poll(6*time.Second, func() error {
			if left := proxied(); left != "" {
				return errors.New(left)
			}
			return nil
		}); err != nil {
			t.Errorf("idle for %v: the proxy's socket after 6 s: %v", idle, err)
		}
		inA("nft", "delete table inet lost")
	}
}
