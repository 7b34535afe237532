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

// TestExternalProxyAgentSuspended asks for a name while the agent is suspended. The pod for which the agent has
// acknowledged the address gets its answer. Another pod's answer waits until the agent goes on, or for the next one:
// then the address stays in force when the first pod has gone.
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
			ask := func(who party) error {
				answer, err := who.resolve("udp", n.b.at(false, dnsPort), "www.example.com.")
				if err != nil || answer.Rcode != dns.RcodeSuccess {
					return fmt.Errorf("%s: %v, %w", who.name, answer, err)
				}
				return nil
			}
			askKnown := func() {
				t.Helper()
				if err := ask(n.a); err != nil {
					t.Fatal(err)
				}
			}
			askKnown()
			n.one.signal(unix.SIGSTOP)
			for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) { // until the agent's connection is full, and was closed
				askKnown()
			}
			waiting := make(chan error, 1)
			go func() { waiting <- ask(n.c) }()
			select {
			case err := <-waiting:
				t.Errorf("the other pod's answer has not waited for an agent: %v", err)
			case <-time.After(100 * time.Millisecond):
			}
			asked := time.Now()
			end(t, n.one)
			if err := <-waiting; err != nil {
				t.Error(err)
			}
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
