package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/fault"
)

func addresses(list ...string) (all []dnsname.Address) {
	for _, text := range list {
		all = append(all, dnsname.Address{Addr: netip.MustParseAddr(text), TTL: time.Minute})
	}
	return all
}

// exampleScope has a rule for *.example, and 10.0.0.0/8 for the cluster.
var exampleScope = &policy.NameScope{
	Rules:   []model.DNSRule{{Pattern: "*.example"}},
	Cluster: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/64")},
}

// learnAll is an agent that learns everything.
func learnAll(context.Context, message) (any, []*os.File, error) { return nil, nil, nil }

func learnWithin(t *testing.T, l policy.Learner, timeout time.Duration, body learnRequest) error {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	return policy.LearnAndWait(ctx, l, body.Endpoint, body.Name, body.Addresses)
}

// TestLearnWithoutAgent has answers while no agent is there, until one comes.
func TestLearnWithoutAgent(t *testing.T) {
	const timeout = 20 * time.Millisecond
	l := NewLearner(slog.New(slog.DiscardHandler))
	learn := func(name string, list ...string) error {
		return learnWithin(t, l, timeout, learnRequest{7, name, addresses(list...)})
	}
	if err := learn("www.other", "192.0.2.1"); !errors.Is(err, ErrNoAgent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("before any agent: %v, want %v, late", err, ErrNoAgent)
	}
	l.setScope(exampleScope)
	agent, end := rpcConns(t, refuse, learnAll)
	l.setAgent(agent)
	if err := learn("known.example", "192.0.2.1", "2001:db8::1"); err != nil {
		t.Fatal(err)
	}
	_ = end.wire.close()
	l.setAgent(nil)
	for name, row := range map[string]struct {
		endpoint uint16
		name     string
		list     []string
		waits    bool
	}{
		"of a name that no rule selects": {7, "www.other", []string{"192.0.2.9"}, false},
		"of the cluster":                 {7, "www.example", []string{"10.1.2.3", "fd00::1", "::ffff:10.0.0.1"}, false},
		"that no other machine has":      {7, "www.example", []string{"127.0.0.1", "169.254.1.1"}, false},
		"acknowledged":                   {7, "known.example", []string{"2001:db8::1", "192.0.2.1"}, false},
		"acknowledged, and of a cluster": {7, "known.example", []string{"192.0.2.1", "10.0.0.1"}, false},
		"one of them new":                {7, "known.example", []string{"192.0.2.1", "192.0.2.2"}, true},
		"acknowledged for another name":  {7, "other.example", []string{"192.0.2.1"}, true},
		"acknowledged for another pod":   {8, "known.example", []string{"192.0.2.1"}, true},
		"outside of the cluster":         {7, "www.example", []string{"10.0.0.1", "192.0.2.9"}, true},
		"of the cluster's neighbour":     {7, "www.example", []string{"11.0.0.1"}, true},
	} {
		wait, err := l.Learn(row.endpoint, row.name, addresses(row.list...))
		if err != nil {
			t.Fatal(err)
		}
		if (wait != nil) != row.waits {
			t.Errorf("addresses %s: waits: %t, want %t", name, wait != nil, row.waits)
		}
		if err := learnWithin(t, l, timeout, learnRequest{row.endpoint, row.name, addresses(row.list...)}); errors.Is(err, ErrNoAgent) != row.waits {
			t.Errorf("addresses %s: %v, want that it waits: %t", name, err, row.waits)
		}
	}
	waiting := make(chan error, 1)
	go func() {
		waiting <- learnWithin(t, l, time.Minute, learnRequest{7, "new.example", addresses("192.0.2.5")})
	}()
	next, _ := rpcConns(t, refuse, learnAll)
	l.setAgent(next)
	if err := <-waiting; err != nil {
		t.Errorf("when the next agent is there: %v", err)
	}
}

// TestLearnAgentGoes has an agent end in the middle of a call: the next one learns.
func TestLearnAgentGoes(t *testing.T) {
	l := NewLearner(slog.New(slog.DiscardHandler))
	asked := make(chan struct{}, 1)
	agent, end := rpcConns(t, refuse, func(ctx context.Context, _ message) (any, []*os.File, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	l.setAgent(agent)
	done := make(chan error, 1)
	go func() { done <- learnWithin(t, l, time.Minute, learnRequest{7, "www.example", addresses("192.0.2.1")}) }()
	<-asked
	_ = end.wire.close()
	learned := make(chan learnRequest, 1)
	next, _ := rpcConns(t, refuse, func(_ context.Context, m message) (any, []*os.File, error) {
		var body learnRequest
		err := json.Unmarshal(m.Body, &body)
		learned <- body
		return nil, nil, err
	})
	l.setAgent(next)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := <-learned; got.Endpoint != 7 || got.Name != "www.example" || len(got.Addresses) != 1 {
		t.Errorf("the next agent has learned %+v", got)
	}
}

// TestLearnAgentErrors: an agent that has no room is not asked again. A starting or ending agent is.
func TestLearnAgentErrors(t *testing.T) {
	l := NewLearner(slog.New(slog.DiscardHandler))
	calls := 0
	agent, _ := rpcConns(t, refuse, func(_ context.Context, m message) (any, []*os.File, error) {
		var body learnRequest
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return nil, nil, err
		}
		if body.Name == "full.example" {
			return nil, nil, fault.New(fault.Exhausted, "full")
		}
		if calls++; calls == 1 {
			return nil, nil, fault.New(fault.Unavailable, "the agent is stopping")
		}
		return nil, nil, nil
	})
	l.setAgent(agent)
	if err := learnWithin(t, l, time.Minute, learnRequest{7, "full.example", addresses("192.0.2.1")}); fault.KindOf(err) != fault.Exhausted {
		t.Errorf("no room: %v", err)
	}
	if err := learnWithin(t, l, time.Minute, learnRequest{7, "www.example", addresses("192.0.2.1")}); err != nil || calls != 2 {
		t.Errorf("after %d calls: %v, want none after 2", calls, err)
	}
}

// TestLearnAgentHangs: an answer that passes without an agent waits for a hanging one for a moment only.
func TestLearnAgentHangs(t *testing.T) {
	l := NewLearner(slog.New(slog.DiscardHandler))
	l.setScope(exampleScope)
	agent, _ := rpcConns(t, refuse, func(ctx context.Context, _ message) (any, []*os.File, error) {
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	l.setAgent(agent)
	began := time.Now()
	if err := learnWithin(t, l, time.Minute, learnRequest{7, "www.other", addresses("192.0.2.1")}); err != nil || time.Since(began) < slowAgent {
		t.Errorf("a name that no rule selects: %v after %v", err, time.Since(began))
	}
	if err := learnWithin(t, l, 4*slowAgent, learnRequest{7, "www.example", addresses("192.0.2.1")}); !errors.Is(err, ErrNoAgent) {
		t.Errorf("a name that a rule selects: %v, want %v", err, ErrNoAgent)
	}
}

// TestLearnRulesUnknown: rules that cannot be used may select every name.
func TestLearnRulesUnknown(t *testing.T) {
	l := NewLearner(slog.New(slog.DiscardHandler))
	l.setScope(exampleScope)
	l.setScope(&policy.NameScope{Rules: []model.DNSRule{{Name: "of a later version"}}})
	if l.passes(learnRequest{7, "www.other", addresses("192.0.2.1")}) {
		t.Error("a name passes that a rule may select")
	}
}

// TestAcknowledgedExpires at the end of the TTL, and of the shortest time that an agent keeps an address. An answer
// again extends it.
func TestAcknowledgedExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newAcknowledged()
		add := func(ttl time.Duration) {
			x.add(learnRequest{7, "www", []dnsname.Address{{Addr: netip.MustParseAddr("::ffff:192.0.2.1"), TTL: ttl}}}, time.Now())
		}
		has := func() bool {
			x.expire()
			return x.has(7, "www", []netip.Addr{netip.MustParseAddr("192.0.2.1")})
		}
		add(time.Second)
		time.Sleep(59 * time.Second)
		if !has() {
			t.Error("it is forgotten before a minute")
		}
		add(2 * time.Minute)
		add(time.Second)
		time.Sleep(119 * time.Second)
		if !has() {
			t.Error("it is forgotten before its TTL")
		}
		time.Sleep(time.Second)
		if has() || len(x.until) > 0 || x.quota.Used() > 0 {
			t.Errorf("it is kept: %v, %d are counted", x.until, x.quota.Used())
		}
	})
}

// TestAcknowledgedBounded has one endpoint take all that it may have: there is room for others, and for itself when it
// is gone.
func TestAcknowledgedBounded(t *testing.T) {
	x := newAcknowledged()
	answer := func(endpoint uint16, i int) learnRequest {
		return learnRequest{endpoint, fmt.Sprintf("n%d", i), []dnsname.Address{{Addr: netip.MustParseAddr("192.0.2.1"), TTL: time.Hour}}}
	}
	has := func(a learnRequest) bool { return x.has(a.Endpoint, a.Name, []netip.Addr{a.Addresses[0].Addr}) }
	for i := range 2 * maxAcknowledgedOfEndpoint {
		x.add(answer(7, i), time.Now())
	}
	if n := x.quota.Used(); n != maxAcknowledgedOfEndpoint || len(x.list()) != n {
		t.Errorf("%d addresses are remembered, want %d", n, maxAcknowledgedOfEndpoint)
	}
	x.add(answer(8, 1), time.Now())
	if !has(answer(8, 1)) || !has(answer(7, 1)) || has(answer(7, 2*maxAcknowledgedOfEndpoint-1)) {
		t.Error("not the first ones are remembered, or those of another endpoint are not")
	}
	x.removeEndpoint(7)
	x.add(answer(7, 5000), time.Now())
	if !has(answer(7, 5000)) || has(answer(7, 1)) || !has(answer(8, 1)) {
		t.Error("the next endpoint with the ID has no room, or what another one was told")
	}
}
