package e2e

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/internal/testutil"
)

// TestKubernetesStore: two nodes share nothing but the Kubernetes API. Their pods reach each other, and policies of the
// API select the pods of the other node by labels of the pod and of its namespace, which change.
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
			flags := api.store(mode.flags)
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

// TestKubernetesStoreRequests holds the requests of a start of an agent that has had a pod before.
func TestKubernetesStoreRequests(t *testing.T) {
	t.Parallel()
	node := testutil.NewNode(t)
	api := newAPIServer(t, node)
	api.namespace("shop", nil)
	api.pod("web", "web")
	flags := api.store(ipamModes[1].flags)
	r := rigOn(t, node, append(flags, api.flags...)...)
	r.named("shop", "web")
	r.agent.Stop(t)
	api.Requests()
	r.agent.Start(t)
	want := map[string]int{
		"get namespaces": 1, "list porinclusters": 1, "get porinnodes": 1, "get porinsessions": 1, "update porinsessions": 1,
		"list porinblocks": 1, "update porinnetworks": 1,
	}
	for _, kind := range []string{
		"pods", "namespaces", "networkpolicies", "customresourcedefinitions", "nodes", "porinclusters", "porinnodes", "porinsessions", "porinpools",
	} {
		want["watch "+kind], want["list "+kind] = 1, max(want["list "+kind], 1)
	}
	for _, kind := range []string{"porinnetworks", "porinendpointgroups"} { // peers.db has them: one record is compared
		want["watch "+kind], want["compare "+kind] = 1, 1
	}
	got := map[string]int{}
	testutil.Eventually(t, func() error {
		for _, request := range api.Requests() {
			if strings.HasPrefix(request.Selector, "metadata.name=") && want["compare "+request.Resource] > 0 {
				request.Verb = "compare"
			}
			got[request.Verb+" "+request.Resource]++
		}
		got["list porinclusters"] = min(got["list porinclusters"], 1)     // more if the store's origin is asked for before the watch has told it
		got["update porinnetworks"] = min(got["update porinnetworks"], 1) // twice if the node learns an address late
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("requests (-want +got):\n%s", diff)
		}
		return nil
	})
}
