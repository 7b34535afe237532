package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// TestExternalProxyAgentSuspended asks for a name while the agent is suspended, and gets the answer, as another pod has asked before and the datapath has the
// address. What is passed on meanwhile the agent learns when it goes on, and the next one when it is killed: the address stays in force when the other pod has
// gone.
func TestExternalProxyAgentSuspended(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *rig){
		"goes on": func(_ *testing.T, r *rig) { r.signal(unix.SIGCONT) },
		"is killed": func(t *testing.T, r *rig) {
			r.agent.Kill(t)
			r.agent.Start(t)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, p := newExternal(t)
			n.ciliumPolicy(anyName)
			serveNames(t, n.b)
			ask := func(who party) {
				t.Helper()
				answer, err := who.resolve("udp", n.b.at(false, dnsPort), "www.example.com.")
				if err != nil || answer.Rcode != dns.RcodeSuccess {
					t.Fatalf("%s: %v, %v", who.name, answer, err)
				}
			}
			ask(n.a)
			n.one.signal(unix.SIGSTOP)
			for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) { // until the agent's connection is full, and was closed
				ask(n.a)
			}
			ask(n.c)
			asked := time.Now()
			end(t, n.one)
			n.one.connected(p)
			if err := n.one.cni.Del(n.podA.Container); err != nil {
				t.Fatal(err)
			}
			testutil.Eventually(t, func() error {
				explained := n.one.cli("policy", "explain", "--from", "demo/c", "--to", "198.51.100.9", "--port", "443").out
				if !strings.Contains(explained, "Verdict:   allowed") {
					return fmt.Errorf("%v after c has got the answer, with a TTL of 60 s: %s", time.Since(asked), explained)
				}
				return nil
			})
		})
	}
}
