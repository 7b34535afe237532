package policy

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/dnsname"
)

// TestLearnForEndpointThatIsGone: an answer comes when the pod that has asked is gone already (queries by UDP are not
// ended with their pod, and take up to 4.5 s). A pod that goes takes with it the names that it alone has asked for:
// otherwise the address would stay for its TTL, a week at the most.
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

// TestLearnDoesNotBlock delays one write of the datapath by a second. [Learner.Learn] is called by the one goroutine
// that reads all answers to queries of all pods, and so must not wait for that: the returned function does.
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

// TestLearnBesideFlood has one pod learn as much as a pod may ask at a time, each answer with many new addresses.
// Another one waits for no longer than one of its answers.
func TestLearnBesideFlood(t *testing.T) {
	n := servingNode(t, "")
	hostile, other := pod(1, "hostile"), pod(65, "web")
	n.attach(t, hostile)
	n.attach(t, other)
	n.put(t, webTo("names", "*.example"))
	writes := make(chan struct{}, 1000)
	n.kernel.mu.Lock()
	n.kernel.refuse = func(map[string]Local) error {
		writes <- struct{}{}
		time.Sleep(10 * time.Millisecond) // as long as a write of many addresses takes
		return nil
	}
	n.kernel.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i := range 256 {
		var answer []dnsname.Address
		for k := range manyAddresses {
			answer = append(answer, dnsname.Address{Addr: netip.AddrFrom4([4]byte{198, 18, byte(i), byte(k)}), TTL: time.Hour})
		}
		all.Go(func() { _ = LearnAndWait(ctx, n.queue.names, hostile.ID, fmt.Sprintf("h%d.example", i), answer) })
	}
	for range 3 {
		<-writes
	}
	if err := LearnAndWait(ctx, n.queue.names, other.ID, "www.example", named("192.0.2.1")); err != nil {
		t.Error(err)
	}
	if n := len(writes); n > 20 {
		t.Errorf("the other pod has waited for %d writes", n)
	}
}
