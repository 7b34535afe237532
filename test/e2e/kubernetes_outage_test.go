package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// outageVariable is how long the API server is away, as a duration. By hand: 10m.
const outageVariable = "PORIN_OUTAGE"

const talkToDB = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: talk, namespace: shop}
spec:
  podSelector: {matchLabels: {app: db}}
  ingress:
  - from: [{podSelector: {matchLabels: {app: web}}}]
    ports: [{port: 7000, protocol: UDP}]
`

// TestKubernetesOutage: the API server is away for both nodes while pods talk under policies, agents restart and pods
// end. No datagram is lost, no denied connection passes, and each DEL succeeds.
func TestKubernetesOutage(t *testing.T) {
	t.Parallel()
	outage := 8 * time.Second
	if text := os.Getenv(outageVariable); text != "" {
		var err error
		if outage, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	fabric := testutil.NewLAN(t)
	one, two := fabric.NewNode(t), fabric.NewNode(t)
	api := newAPIServer(t, one)
	apis := []*apiServer{api, api.on(two)}
	api.namespace("shop", map[string]string{"team": "shop"})
	api.pod("web", "web")
	api.pod("other", "other")
	apis[1].pod("db", "db")
	flags := api.store(ipamModes[1].flags)
	c := &nodeGroup{TB: t, nodes: []*rig{rigOn(t, one, slices.Concat(flags, api.flags)...), rigOn(t, two, slices.Concat(flags, apis[1].flags)...)}}
	web, other, db := c.nodes[0].named("shop", "web"), c.nodes[0].named("shop", "other"), c.nodes[1].named("shop", "db")
	ending := [][]pod{}
	for i, r := range c.nodes {
		ending = append(ending, nil)
		for n := range endingPods {
			name := fmt.Sprintf("ending-%d-%d", i, n)
			apis[i].pod(name, "other")
			ending[i] = append(ending[i], r.named("shop", name))
		}
	}
	c.waitForMesh([]pod{web, other, db})
	api.policy(webToDB)
	api.policy(talkToDB)
	for _, addr := range []netip.Addr{db.ipv4, db.ipv6} {
		db.Listen(t, netip.AddrPortFrom(addr, 8080)) // the kernel accepts
	}
	c.nodes[0].reaches(web, db, true)
	c.nodes[0].reaches(other, db, false)

	silence := c.talk(web, db)
	stopKnocking := knock(t, other, db)
	for _, api := range apis {
		api.stop()
	}
	restarts, deletions, failed := 0, 0, 0
	began := time.Now()
	for round := 0; round == 0 || time.Since(began) < outage; round++ {
		for i, r := range c.nodes {
			if round%2 == 0 {
				r.agent.Stop(t) // writes what it knows of the other node, which it does every five seconds otherwise
				r.agent.Start(t)
			} else {
				r.agent.Restart(t) // is killed
			}
			restarts++
			if len(ending[i]) > 0 && time.Since(began) >= outage*time.Duration(endingPods-len(ending[i]))/endingPods {
				deletions++
				if err := r.cni.Del(ending[i][0].Container); err != nil {
					failed++
					t.Errorf("DEL while the API server is away: %v", err)
				}
				ending[i] = ending[i][1:]
			}
		}
		c.nodes[0].reaches(web, db, true) // new connections, too
		time.Sleep(min(2*time.Second, max(0, outage-time.Since(began))))
	}
	took := time.Since(began)
	tried, passed := stopKnocking()
	asked, lost := silence()
	t.Logf("the API server was away for %v: %d restarts of agents, %d of %d datagrams lost, %d of %d denied connections passed, %d of %d DELs failed",
		took.Round(time.Second), restarts, lost, asked, passed, tried, failed, deletions)
	if asked == 0 || lost > 0 {
		t.Errorf("%d of %d datagrams were lost", lost, asked)
	}
	if tried == 0 || passed > 0 {
		t.Errorf("%d of %d denied connections passed", passed, tried)
	}
	for _, api := range apis {
		api.listen()
	}
	apis[0].pod("other", "web")
	c.nodes[0].reaches(other, db, true)
}

// endingPods is how many pods of each node end during the outage.
const endingPods = 5

// knock tries denied connections until the function that it returns is called. That says how many were tried, and how
// many passed.
func knock(t *testing.T, from, to pod) func() (tried, passed int) {
	ctx, cancel := context.WithCancel(t.Context())
	type count struct{ tried, passed int }
	result := make(chan count, 1)
	go func() {
		var n count
		for ctx.Err() == nil {
			for _, addr := range []netip.Addr{to.ipv4, to.ipv6} {
				n.tried++
				if conn, err := connectFrom(from.Namespace, netip.AddrPortFrom(addr, 8080), unreachable); err == nil {
					n.passed++
					_ = conn.Close()
				}
			}
		}
		result <- n
	}()
	return func() (tried, passed int) {
		cancel()
		n := <-result
		return n.tried, n.passed
	}
}
