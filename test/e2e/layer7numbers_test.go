package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestExternalProxyRulesWithOneHash has two sets of rules with one hash (FNV-1a, of 31 bits) for two ports, and restarts the agent: porin-proxy never decides by one of them about what the other one is for.
func TestExternalProxyRulesWithOneHash(t *testing.T) {
	n, p := newExternal(t)
	put := func(name, port, path string) {
		t.Helper()
		manifest := fmt.Sprintf("apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: %s, namespace: demo}\nspec: {endpointSelector: {matchLabels: {app: b}}, ingress: "+
			"[{toPorts: [{ports: [{port: %q, protocol: TCP}], rules: {http: [{path: %q}]}}]}]}\n", name, port, path)
		if _, err := n.one.api.PutPolicies(n.Context(), []byte(manifest)); err != nil {
			t.Fatal(err)
		}
	}
	const one, other = "/34825", "/78014"
	ended := make(chan struct{})
	var asked, passed atomic.Int64
	var restarting atomic.Bool
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			client := webClient(t, n.a.Namespace, false)
			for {
				select {
				case <-ended:
					return
				default:
				}
				if !restarting.Load() {
					time.Sleep(time.Millisecond)
					continue
				}
				status, _, err := get(client, n.b.at(false, webPort), one)
				asked.Add(1)
				if err == nil && status != http.StatusForbidden && restarting.Load() {
					passed.Add(1)
				}
			}
		})
	}
	for range 4 {
		for _, name := range []string{"zz", "aa"} {
			_ = n.one.api.DeletePolicy(n.Context(), "CiliumNetworkPolicy", "demo", name)
		}
		time.Sleep(500 * time.Millisecond)
		put("zz", "8082", one) // before the other one; when the agent starts again, after it
		put("aa", "8081", other)
		restarting.Store(true)
		n.one.agent.Kill(t)
		n.one.agent.Start(t)
		n.one.connected(p)
		time.Sleep(300 * time.Millisecond)
		restarting.Store(false)
		time.Sleep(100 * time.Millisecond)
	}
	close(ended)
	clients.Wait()
	if passed.Load() > 0 || asked.Load() == 0 {
		t.Errorf("%d of %d requests for what is denied have passed", passed.Load(), asked.Load())
	}
}
