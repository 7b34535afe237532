package control

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"testing"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/dnsname"
)

// TestLearnByAgent: the agent learns, with its errors. When it is gone, also in the middle of a call, a proxy without a journal says that there is none.
func TestLearnByAgent(t *testing.T) {
	l := NewLearnRouter(Config{StateDir: t.TempDir(), Socket: "/nowhere"}, slog.New(slog.DiscardHandler))
	learned := make(chan learnRequest, 10)
	agent, end := peers(t, refuse, func(ctx context.Context, m message) (any, []*os.File, error) {
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

// TestTellerClose has an agent that answers nothing: what waits to be told holds up the end for no longer than a moment.
func TestTellerClose(t *testing.T) {
	l := NewLearnRouter(Config{StateDir: t.TempDir(), Socket: "/nowhere"}, slog.New(slog.DiscardHandler))
	asked := make(chan struct{}, maxWaiting)
	agent, _ := peers(t, refuse, func(ctx context.Context, m message) (any, []*os.File, error) {
		asked <- struct{}{}
		<-ctx.Done()
		return nil, nil, ctx.Err()
	})
	l.setAgent(agent)
	for range 100 {
		if !l.tellLater(learnRequest{7, "www.example", nil}) {
			t.Fatal("there is no room for 100 answers")
		}
	}
	<-asked
	began := time.Now()
	if err := l.close(nil); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*tellTimeout {
		t.Errorf("closed after %v", took)
	}
	if l.tellLater(learnRequest{7, "www.example", nil}) {
		t.Error("something is told after the end")
	}
}
