package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
)

func TestNumbersReuse(t *testing.T) {
	ids := newIDs(100)
	first, _ := ids.allocate()
	ids.free(first)
	for want := first + 1; want <= 100; want++ {
		got, err := ids.allocate()
		if err != nil || got != want {
			t.Fatalf("allocate = %d, %v, want %d", got, err, want)
		}
	}
	if got, err := ids.allocate(); err != nil || got != first {
		t.Fatalf("after all others: allocate = %d, %v, want %d", got, err, first)
	}
	if _, err := ids.allocate(); !errors.Is(err, ErrNoID) {
		t.Fatalf("all in use: error %v, want ErrNoID", err)
	}
	if ids.reserve(0) || ids.reserve(first) {
		t.Error("0 and a number in use can be reserved")
	}
	if !ids.reserve(101) {
		t.Error("a number of an agent with more endpoints cannot be reserved")
	}
	if n := ids.count(); n != 100 {
		t.Errorf("%d of 100 numbers are used", n)
	}
	ids.free(7)
	if got, err := ids.allocate(); err != nil || got != 7 {
		t.Fatalf("with one free: allocate = %d, %v, want 7", got, err)
	}
}

// TestMailboxOrderAndClose posts many messages at once to an endpoint, and closes its mailbox: each caller gets an
// answer, in the order of the messages.
func TestMailboxOrderAndClose(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	if _, err := m.Create(t.Context(), specOf("c1:eth0"), nil); err != nil {
		t.Fatal(err)
	}
	e := m.registry.find(specOf("c1:eth0").Attachment)
	var messages []*message
	for range 100 {
		messages = append(messages, &message{verb: verbRepair, ctx: t.Context(), done: make(chan answer, 1)})
	}
	for _, msg := range messages {
		if !m.registry.post(e, msg) {
			t.Fatal("the mailbox of a living endpoint is closed")
		}
	}
	m.registry.close()
	if a := e.ask(t.Context(), message{verb: verbRepair}); !errors.Is(a.err, ErrStopped) {
		t.Errorf("a message after the end: %+v, want ErrStopped", a)
	}
	for i, msg := range messages {
		select {
		case a := <-msg.done:
			if a.err != nil {
				t.Errorf("message %d: %v", i, a.err)
			}
		default:
			t.Fatalf("message %d has no answer, and the endpoint's goroutine has ended", i)
		}
	}
}

// TestStopWithFullMailboxes stops the manager while callers wait for each of its endpoints.
func TestStopWithFullMailboxes(t *testing.T) {
	const endpoints, callers = 20, 10
	p := &probe{detach: func() error { return errors.New("the kernel said no") }}
	m := started(t, t.TempDir(), p)
	m.cfg.RetryInterval = time.Millisecond
	var calls sync.WaitGroup
	for i := range endpoints {
		spec := specOf(fmt.Sprintf("c%d:eth0", i))
		if _, err := m.Create(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
		for range callers {
			calls.Go(func() { m.Delete(context.Background(), spec.Attachment, endpoint.DeleteConfig{}) })
			calls.Go(func() { _, _ = m.Create(context.Background(), spec, nil) })
			calls.Go(func() { _ = m.Repair(context.Background(), spec.Attachment) })
		}
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	calls.Wait()
}

func TestStateTransitions(t *testing.T) {
	states := []endpoint.State{"", endpoint.Waiting, endpoint.Queued, endpoint.Regenerating, endpoint.Ready, endpoint.Restoring, endpoint.Held, endpoint.Disconnecting, endpoint.Disconnected, endpoint.Invalid}
	allowed := 0
	for _, who := range []actor{outside, builder} {
		for _, from := range states {
			for _, to := range states {
				table := NewTable()
				ep := endpoint.Endpoint{ID: 1, State: from}
				ok := table.transition(&ep, who, to)
				if ok {
					allowed++
				}
				if ok != mayBecome(who, from, to) || ok != (ep.State == to && from != to) || (table.refused.Load() == 0) != ok {
					t.Errorf("%s: %s -> %s: %v, state %s, refused %d", who, from, to, ok, ep.State, table.refused.Load())
				}
			}
		}
	}
	if allowed != 20 {
		t.Errorf("%d transitions are allowed, want the 20 of the table", allowed)
	}
	for _, terminal := range []endpoint.State{endpoint.Disconnected, endpoint.Invalid} {
		if len(transitions[outside][terminal])+len(transitions[builder][terminal]) > 0 {
			t.Errorf("%s is not terminal", terminal)
		}
	}
}

func TestTableAddressConflict(t *testing.T) {
	table := NewTable()
	addr := endpoint.Addresses{IPv4: netip.MustParseAddr("10.0.0.1")}
	first := endpoint.Endpoint{ID: 1, Spec: endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}}, Addresses: addr}
	second := endpoint.Endpoint{ID: 2, Spec: endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: "c2", IfName: "eth0"}}, Addresses: addr}
	if err := table.put(first); err != nil {
		t.Fatal(err)
	}
	if err := table.put(second); !errors.Is(err, ErrInUse) {
		t.Fatalf("error %v, want ErrInUse", err)
	}
	if got, err := table.Get(endpoint.ByAddress(addr.IPv4)); err != nil || got != first {
		t.Errorf("the address leads to %v, %v", got.ID, err)
	}
	if _, err := table.Get(endpoint.ByID(2)); !errors.Is(err, ErrNotFound) {
		t.Errorf("the refused endpoint is in the table: %v", err)
	}
}
