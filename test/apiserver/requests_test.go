package apiserver

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/apiserver"
)

const (
	startRequests   = 30
	idleRequests    = 60 // of an hour
	podLifeRequests = 2  // all of them writes
	// idleVariable is how long the agent idles, as a duration. By hand: 1h.
	idleVariable = "PORIN_IDLE"
)

// TestRequests counts what an agent that keeps its records at the API server asks for: when it starts, while nothing
// happens, and during a pod's life.
func TestRequests(t *testing.T) {
	idle := 10 * time.Second
	if text := os.Getenv(idleVariable); text != "" {
		var err error
		if idle, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	n := newMachine(t)
	if err := create(t.Context(), n.admin, "porinpools", pool("default")); err != nil {
		t.Fatal(err)
	}
	n.startAgent("", "--store=kubernetes", "--ipam-mode=multi-pool", "--ipam-pod-cidr=")
	n.attach("before", n.create("before", nil)) // the node has a block
	t.Logf("the node's first start and first pod: %d requests", n.settled())

	n.agent.Stop(t)
	before := n.settled()
	n.agent.Start(t)
	start := n.requestsSince(before)
	t.Logf("a start: %d requests: %v", len(start), byVerb(start))
	if len(start) > startRequests {
		t.Errorf("a start takes %d requests, want at most %d", len(start), startRequests)
	}

	before = n.settled()
	const pods = 10
	for i := range pods {
		name := fmt.Sprintf("pod-%d", i)
		uid := n.create(name, map[string]any{"app": name})
		n.knows(3) // the agent's own pod, and the one before
		c, _ := n.attach(name, uid)
		n.cni.MustDel(n, c)
		n.delete(name)
		n.knows(2)
	}
	life := n.requestsSince(before)
	reads := slices.DeleteFunc(slices.Clone(life), func(r apiserver.Request) bool { return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" })
	t.Logf("%d pods, one after the other: %d requests: %v", pods, len(life), byVerb(life))
	if len(life) > pods*podLifeRequests || len(reads) > 0 {
		t.Errorf("the life of %d pods takes %d requests, %d of them reads; want at most %d and none", pods, len(life), len(reads), pods*podLifeRequests)
	}

	before = n.settled()
	time.Sleep(idle)
	idling := n.requestsSince(before)
	t.Logf("%v without news: %d requests: %v", idle, len(idling), byVerb(idling))
	if most := max(2, int(idleRequests*idle.Hours())); len(idling) > most {
		t.Errorf("%v without news take %d requests, want at most %d", idle, len(idling), most)
	}
}

// settled waits until the agent has asked for nothing for two seconds, and returns how many requests it has made.
func (n *node) settled() (requests int) {
	n.Helper()
	last, since := -1, time.Now()
	testutil.Eventually(n, func() error {
		if requests = len(n.Requests(n)); requests != last {
			last, since = requests, time.Now()
		}
		if quiet := time.Since(since); quiet < 2*time.Second {
			return fmt.Errorf("the agent has been quiet for %v after %d requests", quiet, requests)
		}
		return nil
	})
	return requests
}

func (n *node) requestsSince(before int) []apiserver.Request {
	n.Helper()
	n.settled()
	return n.Requests(n)[before:]
}

// knows waits until the agent knows so many pods of its node.
func (n *node) knows(pods int) {
	n.Helper()
	testutil.Eventually(n, func() error {
		var status v1.Status
		if err := n.agent.Get("/v1/status", &status); err != nil {
			return err
		}
		for _, kind := range status.Kubernetes.Kinds {
			if kind.Kind == "pods" && kind.Objects == pods {
				return nil
			}
		}
		return fmt.Errorf("the agent does not know %d pods", pods)
	})
}

// byVerb counts requests by verb and kind.
func byVerb(requests []apiserver.Request) map[string]int {
	counts := map[string]int{}
	for _, r := range requests {
		counts[r.Verb+" "+r.Resource]++
	}
	return counts
}
