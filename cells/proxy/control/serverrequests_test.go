package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/testutil"
)

// takesRequests answers calls with requests by what take returns.
func takesRequests(t *testing.T, take func(requestBatch) error) handler {
	return func(_ context.Context, m message) (any, []*os.File, error) {
		var batch requestBatch
		if m.Method != methodRequests {
			return nil, nil, nil
		}
		if err := json.Unmarshal(m.Body, &batch); err != nil {
			t.Error(err)
		}
		return nil, nil, take(batch)
	}
}

// TestRequests: what clients ask for while no agent is there, or while one does not take it, gets to the next agent,
// once and in order.
func TestRequests(t *testing.T) {
	s, _ := newServer(t, t.TempDir())
	s.start(t)
	const count = 3*requestsOfCall + 1
	var want []accesslog.Request
	for i := range count {
		r := accesslog.Request{
			Time: time.Unix(int64(i), 5).UTC(), Protocol: model.TCP, Client: netip.MustParseAddrPort("10.0.0.2:40000"), Server: netip.MustParseAddrPort("[fd00::1]:80"), Endpoint: 7,
			HTTP: accesslog.NewHTTP("GET", "api.example", fmt.Sprintf("/%d", i), 403), Verdict: accesslog.Denied, Reason: "no-rule",
		}
		want = append(want, r)
		s.requests.requests.Add(r)
	}
	took, release := make(chan struct{}, count), make(chan struct{})
	refusing := connect(t, s, takesRequests(t, func(requestBatch) error {
		took <- struct{}{}
		<-release
		return fault.New(fault.Unavailable, "the agent stops")
	}))
	refusing.sayHello(t)
	<-took
	close(release)
	_ = refusing.wire.close()

	var got accesslog.Log
	batches := make(chan int, count)
	connect(t, s, takesRequests(t, func(b requestBatch) error {
		got.Append(b.Requests, b.Lost)
		batches <- len(b.Requests)
		return nil
	})).sayHello(t)
	for n := 0; n < count; {
		select {
		case of := <-batches:
			n += of
		case <-time.After(20 * time.Second):
			t.Fatalf("the agent has got %d of %d requests", n, count)
		}
	}
	requests, lost := got.Read()
	if diff := cmp.Diff(want, requests, cmp.Comparer(func(x, y netip.AddrPort) bool { return x == y })); diff != "" || lost > 0 {
		t.Errorf("%d lost; (-want +got):\n%s", lost, diff)
	}
}

// TestRequestsOfEarlierAgent: an agent that does not know the call holds up nothing.
func TestRequestsOfEarlierAgent(t *testing.T) {
	s, _ := newServer(t, t.TempDir())
	s.start(t)
	asked := make(chan struct{}, 1)
	connect(t, s, takesRequests(t, func(requestBatch) error {
		asked <- struct{}{}
		return fault.New(fault.NotFound, "this version of the agent knows no such call")
	})).sayHello(t)
	for i := range 2 {
		s.requests.requests.Add(accesslog.Request{Time: time.Unix(int64(i), 0), Verdict: accesslog.Allowed})
		<-asked
	}
}

// TestLastRequests: the agent gets the requests of the proxy's last moment, too.
func TestLastRequests(t *testing.T) {
	s, _ := newServer(t, t.TempDir())
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got accesslog.Log
	connect(t, s, takesRequests(t, func(b requestBatch) error {
		got.Append(b.Requests, b.Lost)
		return nil
	})).sayHello(t)
	testutil.Eventually(t, func() error {
		if s.agent() == nil {
			return fmt.Errorf("no agent is connected")
		}
		return nil
	})
	s.requests.requests.Add(accesslog.Request{Time: time.Unix(1, 0), Verdict: accesslog.Allowed})
	s.stop(t)
	if requests, _ := got.Read(); len(requests) != 1 {
		t.Errorf("the agent has %d requests, want the last one", len(requests))
	}
}

// TestLastRequestsOnce: the proxy ends while the agent is about to take requests.
func TestLastRequestsOnce(t *testing.T) {
	s, _ := newServer(t, t.TempDir())
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	var got accesslog.Log
	took, release := make(chan struct{}, 1), make(chan struct{})
	connect(t, s, takesRequests(t, func(b requestBatch) error {
		got.Append(b.Requests, b.Lost)
		took <- struct{}{}
		<-release
		return nil
	})).sayHello(t)
	s.requests.requests.Add(accesslog.Request{Time: time.Unix(1, 0), Verdict: accesslog.Allowed})
	<-took
	go func() {
		<-s.requests.stopping
		close(release)
	}()
	s.stop(t)
	if requests, _ := got.Read(); len(requests) != 1 {
		t.Errorf("the agent has %d requests, want the one", len(requests))
	}
}
