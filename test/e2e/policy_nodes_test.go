package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// TestPolicyAcrossNodes has the receiving node decide by the labels of a pod of another node, while labels, pods and
// policies change.
func TestPolicyAcrossNodes(t *testing.T) {
	t.Parallel()
	for _, mode := range testutil.Sample(ipamModes...) {
		t.Run(mode.name, func(t *testing.T) {
			c := newNodes(t, testutil.NewLAN(t), 2, mode.flags...)
			one, two := c.nodes[0], c.nodes[1]
			db := two.labelled("db", "db")
			web := one.labelled("web", "web")
			other := one.labelled("other", "other")
			c.waitForMesh([]pod{db, web, other})
			two.applyPolicy(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: db, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
`)
			reaches := func(from pod, want bool) {
				t.Helper()
				for _, to := range []netip.Addr{db.ipv4, db.ipv6} {
					testutil.Eventually(t, func() error {
						if err := testutil.Ping(from.Namespace, to, 200*time.Millisecond); (err == nil) != want {
							return fmt.Errorf("ping %s: %v, want success %t", to, err, want)
						}
						return nil
					})
				}
			}
			reaches(web, true)
			reaches(other, false)
			one.setLabel("shop", "other", "web")
			one.setLabel("shop", "web", "none")
			reaches(other, true)
			reaches(web, false)
			late := one.labelled("late", "web")
			reaches(late, true)
			for _, r := range c.nodes {
				for _, end := range []func(){func() { r.agent.Kill(t) }, func() { r.agent.Stop(t) }} {
					end()
					r.agent.Start(t)
					if err := testutil.Ping(late.Namespace, db.ipv4, time.Second); err != nil {
						t.Errorf("after a start of the agent of %s: %v", r.node.Name, err)
					}
					reaches(web, false)
				}
			}
			for _, r := range c.nodes {
				r.agrees()
			}
		})
	}
}
