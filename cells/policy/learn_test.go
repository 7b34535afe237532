package policy

import (
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// TestLearnForEndpointThatIsGone: an answer comes when the pod that has asked is gone already (queries by UDP are not ended with their pod, and take up to 4.5 s). A pod that goes
// takes with it what it alone has asked for: nobody would remove the address, for as long as its TTL says, a week at the most.
func TestLearnForEndpointThatIsGone(t *testing.T) {
	n := servingNode(t, "")
	web, other := pod(1, "web"), pod(2, "other")
	n.attach(t, web)
	n.attach(t, other)
	n.put(t, webTo("names", "*.example"))
	if err := n.learn(t, other, "before.example", "192.0.2.1"); err != nil {
		t.Fatal(err)
	}
	if err := n.step.Detach(t.Context(), other, endpoint.DeleteConfig{}); err != nil {
		t.Fatal(err)
	}
	_ = n.learn(t, other, "late.example", "192.0.2.2")
	n.reaches(t, web, "after the pod that has asked is gone", nil, "192.0.2.1", "192.0.2.2")
	if known := n.queue.names.known.NamesOf(other.ID, named("192.0.2.2")[0].Addr, 10); len(known) > 0 {
		t.Errorf("the next pod with ID %d is said to have asked for %q", other.ID, known)
	}
}

// TestLearnDoesNotBlock has the datapath take a second for one write. [Learner.Learn] is called by the one goroutine that reads all answers to queries of all pods, and
// so must not wait for that: what it returns does.
func TestLearnDoesNotBlock(t *testing.T) {
	n := servingNode(t, "")
	web := pod(1, "web")
	n.attach(t, web)
	n.put(t, webTo("names", "*.example"))
	n.kernel.mu.Lock()
	n.kernel.refuse = func(map[string]Local) error { time.Sleep(time.Second); return nil }
	n.kernel.mu.Unlock()
	began := time.Now()
	wait, err := n.queue.names.Learn(web.ID, "www.example", named("192.0.2.1"))
	if took := time.Since(began); took > 100*time.Millisecond {
		t.Errorf("Learn has returned after %v", took)
	}
	if err != nil {
		t.Fatal(err)
	}
	if wait != nil {
		if err := wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
