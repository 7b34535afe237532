package e2e

import (
	"net/netip"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestKubernetesStore: two nodes share nothing but the Kubernetes API. Their pods reach each other, and policies of the API select the pods of
// the other node by labels of the pod and of its namespace, which change.
func TestKubernetesStore(t *testing.T) {
	t.Parallel()
	for _, mode := range ipamModes {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			fabric := testutil.NewLAN(t)
			one, two := fabric.NewNode(t), fabric.NewNode(t)
			api := newAPIServer(t, one)
			other := api.on(two)
			api.namespace("shop", map[string]string{"team": "shop"})
			api.pod("web", "web")
			other.pod("db", "db")
			flags := append([]string{"--store=kubernetes"}, mode.flags...)
			c := &nodeGroup{TB: t, nodes: []*rig{rigOn(t, one, append(flags, api.flags...)...), rigOn(t, two, append(flags, other.flags...)...)}}
			web, db := c.nodes[0].named("shop", "web"), c.nodes[1].named("shop", "db")
			c.waitForMesh([]pod{web, db})

			for _, addr := range []netip.Addr{db.ipv4, db.ipv6} {
				db.Listen(t, netip.AddrPortFrom(addr, 8080)) // the kernel accepts
			}
			api.policy(webToDB)
			c.nodes[0].reaches(web, db, true)
			api.pod("web", "other")
			c.nodes[0].reaches(web, db, false)
			api.pod("web", "web")
			c.nodes[0].reaches(web, db, true)
			api.namespace("shop", map[string]string{"team": "other"})
			c.nodes[0].reaches(web, db, false)
			api.namespace("shop", map[string]string{"team": "shop"})
			c.nodes[0].reaches(web, db, true)

			other.stop()             // the API server is away for this node, and its agent restarts
			c.nodes[1].agent.Stop(t) // writes what it knows
			c.nodes[1].agent.Start(t)
			c.nodes[0].reaches(web, db, true)
			other.listen()
			api.namespace("shop", map[string]string{"team": "other"})
			c.nodes[0].reaches(web, db, false)
		})
	}
}
