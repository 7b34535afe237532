package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/proxy/offline"
)

// TestLearnByAgent: the agent learns, with its errors. When it is gone, also in the middle of a call, a proxy without a journal says that there is none.
func TestLearnByAgent(t *testing.T) {
	l := NewLearnRouter(ServerConfig{StateDir: t.TempDir(), Socket: "/nowhere"}, slog.New(slog.DiscardHandler))
	learned := make(chan learnRequest, 10)
	agent, end := rpcConns(t, refuse, func(ctx context.Context, m message) (any, []*os.File, error) {
		var body learnRequest
		if err := json.Unmarshal(m.Body, &body); err != nil {
			return nil, nil, err
		}
		learned <- body
		switch body.Name {
		case "no.example":
			return refuse(ctx, m)
		case "late.example":
			<-ctx.Done()
		}
		return nil, nil, nil
	})
	do := func(name string, timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		return policy.LearnAndWait(ctx, l, 7, name, []dnsname.Address{{Addr: netip.MustParseAddr("192.0.2.1"), TTL: time.Minute}})
	}
	if err := do("www.example", time.Minute); !errors.Is(err, ErrNoAgent) {
		t.Errorf("before an agent: %v, want %v", err, ErrNoAgent)
	}
	l.setAgent(agent)
	if err := do("www.example", time.Minute); err != nil {
		t.Error(err)
	}
	if got := <-learned; got.Endpoint != 7 || got.Name != "www.example" || len(got.Addresses) != 1 {
		t.Errorf("the agent has learned %+v", got)
	}
	if err := do("no.example", time.Minute); err == nil {
		t.Error("what the agent refuses is learned")
	}
	if err := do("late.example", 20*time.Millisecond); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an agent that does not answer: %v", err)
	}
	done := make(chan error)
	go func() { done <- do("late.example", time.Minute) }()
	for got := (learnRequest{}); got.Name != "late.example"; got = <-learned {
	}
	_ = end.wire.close()
	if err := <-done; !errors.Is(err, ErrNoAgent) {
		t.Errorf("an agent that dies in the middle of a call: %v, want %v", err, ErrNoAgent)
	}
}

// TestNotifierClose has an agent that answers nothing: what waits to be told holds up the end for no longer than a moment.
func TestNotifierClose(t *testing.T) {
	l := NewLearnRouter(ServerConfig{StateDir: t.TempDir(), Socket: "/nowhere"}, slog.New(slog.DiscardHandler))
	asked := make(chan struct{}, maxWaiting)
	agent, _ := rpcConns(t, refuse, func(ctx context.Context, m message) (any, []*os.File, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	l.setAgent(agent)
	answer := []dnsname.Address{{Addr: netip.MustParseAddr("192.0.2.1"), TTL: time.Minute}}
	for i := range 100 {
		if !l.notifier.enqueue(learnRequest{7, fmt.Sprint(i, ".example"), answer}) {
			t.Fatal("there is no room for 100 answers")
		}
	}
	<-asked
	began := time.Now()
	if err := l.close(nil); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*notifyTimeout {
		t.Errorf("closed after %v", took)
	}
	if l.notifier.enqueue(learnRequest{7, "www.example", answer}) {
		t.Error("something is told after the end")
	}
}

// TestNotifierAgentComesBack has an agent that hangs, and then one that answers: it learns everything that was passed on meanwhile, once, until when it is valid;
// and one endpoint leaves room for others.
func TestNotifierAgentComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		learned, answers := map[string]time.Duration{}, false
		n := newAgentNotifier(func(ctx context.Context, body learnRequest) error {
			mu.Lock()
			defer mu.Unlock()
			if !answers {
				return errInForce
			}
			if _, again := learned[body.Name]; again {
				t.Errorf("%s is learned again", body.Name)
			}
			learned[body.Name] = body.Addresses[0].TTL
			return nil
		}, slog.New(slog.DiscardHandler))
		address := netip.MustParseAddr("192.0.2.1")
		took := 0
		for i := range 2 * maxWaitingOfEndpoint {
			if n.enqueue(learnRequest{7, fmt.Sprint(i), []dnsname.Address{{Addr: address, TTL: time.Hour}}}) {
				took++
			}
		}
		if took != maxWaitingOfEndpoint {
			t.Errorf("%d answers of one endpoint wait, want %d", took, maxWaitingOfEndpoint)
		}
		for _, ttl := range []time.Duration{2 * time.Minute, time.Minute} {
			if !n.enqueue(learnRequest{8, "www", []dnsname.Address{{Addr: address, TTL: ttl}}}) {
				t.Error("there is no room for another endpoint's answer")
			}
		}
		if !n.enqueue(learnRequest{8, "short", []dnsname.Address{{Addr: address, TTL: time.Second}}}) {
			t.Error("there is no room for another endpoint's answer")
		}
		time.Sleep(time.Minute)
		mu.Lock()
		answers = true
		mu.Unlock()
		time.Sleep(time.Second)
		mu.Lock()
		if ttl := learned["www"]; ttl > time.Minute || ttl < 59*time.Second || len(learned) != maxWaitingOfEndpoint+1 {
			t.Errorf("%d answers are learned, that of the other endpoint for %v; want one minute that is left, and none that is not valid any more", len(learned), ttl)
		}
		mu.Unlock()
		n.close()
		if len(n.waiting) > 0 || len(n.order) > 0 || n.quota.Used() > 0 {
			t.Errorf("%d, %d and %d are left", len(n.waiting), len(n.order), n.quota.Used())
		}
	})
}

// TestNotifierUnconfirmed has this process itself not be able to learn while no agent is there: the next agent hears of the answer. What an agent refuses is not asked again.
func TestNotifierUnconfirmed(t *testing.T) {
	for _, cause := range []error{offline.ErrStale, offline.ErrNoJournal, offline.ErrFull, errRefusedByAgent} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			agent, learned := false, false
			n := newAgentNotifier(func(context.Context, learnRequest) error {
				mu.Lock()
				defer mu.Unlock()
				learned = agent
				if agent {
					return nil
				}
				return fmt.Errorf("learn www: %w", cause)
			}, slog.New(slog.DiscardHandler))
			defer n.close()
			if !n.enqueue(learnRequest{7, "www", []dnsname.Address{{Addr: netip.MustParseAddr("192.0.2.1"), TTL: time.Hour}}}) {
				t.Fatal("there is no room for it")
			}
			time.Sleep(5 * time.Second)
			mu.Lock()
			agent = true
			mu.Unlock()
			time.Sleep(5 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if want := !errors.Is(cause, errRefusedByAgent); learned != want {
				t.Errorf("after %v: the agent has learned it: %v, want %v", cause, learned, want)
			}
		})
	}
}
