package policy

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/names"
)

func lookupOf(ep endpoint.Endpoint, name string, until time.Time, addresses ...string) names.Lookup {
	l := names.Lookup{Endpoint: ep.ID, Name: name, Addresses: map[netip.Addr]time.Time{}}
	for _, text := range addresses {
		l.Addresses[netip.MustParseAddr(text)] = until
	}
	return l
}

// TestImportBeforeStart: the first write has what a proxy has learned for endpoints that are still there, and the next agent has it, too.
func TestImportBeforeStart(t *testing.T) {
	dir := t.TempDir()
	start := func() *node {
		kernel := newFakeKernel()
		return startQueue(t, NewQueue(engine.Config{}, kernel, nil, NewNames(Config{Dir: dir}, nil, quiet), quiet), dir, kernel)
	}
	web, other := pod(1, "web"), pod(2, "other")
	n := start()
	n.prune(t)
	n.put(t, webTo("names", "*.example"))
	n.attach(t, web)
	n.stop(t)

	next := start()
	if _, err := next.step.Restore(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	next.queue.names.Import([]names.Lookup{
		lookupOf(web, "www.example", time.Now().Add(time.Hour), "192.0.2.1", "10.0.0.1"), lookupOf(other, "gone.example", time.Now().Add(time.Hour), "192.0.2.2"),
	})
	finished, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- next.queue.names.FinishImport(finished) }()
	next.prune(t, web)
	if err := <-done; err != nil || next.kernel.times() != 1 {
		t.Errorf("imported: %v, in %d writes; want it in the first one", err, next.kernel.times())
	}
	next.reaches(t, web, "after the start", []string{"192.0.2.1"}, "192.0.2.1", "192.0.2.2", "10.0.0.1")
	next.stop(t)

	last := start()
	if _, err := last.step.Restore(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	last.prune(t, web)
	last.reaches(t, web, "by the next agent", []string{"192.0.2.1"}, "192.0.2.1", "192.0.2.2")
}

// TestImportLater has everything written anew: the datapath may have addresses that no name has any more.
func TestImportLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := servingNode(t, "")
		web := pod(1, "web")
		n.attach(t, web)
		n.put(t, webTo("names", "*.example"))
		if err := n.learn(t, web, "www.example", "192.0.2.1"); err != nil {
			t.Fatal(err)
		}
		n.kernel.mu.Lock()
		n.kernel.prefixes[netip.MustParsePrefix("192.0.2.9/32")] = n.kernel.prefixes[netip.MustParsePrefix("192.0.2.1/32")]
		n.kernel.mu.Unlock()
		n.reaches(t, web, "as the proxy has written it", []string{"192.0.2.1", "192.0.2.9"}, "192.0.2.1", "192.0.2.2", "192.0.2.9")

		n.queue.names.Import([]names.Lookup{lookupOf(web, "www.example", time.Now().Add(30*time.Second), "192.0.2.2")})
		n.kernel.refuseWith(errKernel)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := n.queue.names.FinishImport(ctx); err == nil {
			t.Error("finished while the kernel refuses")
		}
		n.kernel.refuseWith(nil)
		if err := n.queue.names.FinishImport(t.Context()); err != nil {
			t.Fatal(err)
		}
		n.reaches(t, web, "when it is imported", []string{"192.0.2.1", "192.0.2.2"}, "192.0.2.1", "192.0.2.2", "192.0.2.9")
		<-after(30*time.Second + 2*expireInterval)
		n.reaches(t, web, "after the time until which it is valid", []string{"192.0.2.1"}, "192.0.2.1", "192.0.2.2")
	})
}

// TestFinishImportWaits until the agent has started.
func TestFinishImportWaits(t *testing.T) {
	n := startNode(t, "", newFakeKernel())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.queue.names.FinishImport(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
