package endpointtest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
)

func checkAttach(t testing.TB, s Subject) {
	if s.Step.Name() == "" {
		t.Error("the step has no name")
	}
	before := s.prepare(t, 1)
	s.wants(t, before.Endpoint, false, "before Attach")
	after := s.attachPrepared(t, before)
	s.wants(t, after, true, "after Attach")
	same := before.Endpoint
	same.Addresses, same.Pool, same.IPAMResult = after.Addresses, after.Pool, after.IPAMResult
	same.Host, same.Container, same.MTU = after.Host, after.Container, after.MTU
	if same != after {
		t.Errorf("Attach changed more than addresses, pool and link:\n%+v\nwant\n%+v", after, same)
	}
}

// checkAttachAgain attaches with the first call's result, and with its input: then a link may be made
// again, with other indexes.
func checkAttachAgain(t testing.TB, s Subject) {
	p := s.prepare(t, 1)
	first := s.attachPrepared(t, p)
	other := s.attach(t, 2)
	if again := s.attachPrepared(t, prepared{first, p.namespace}); again != first {
		t.Errorf("Attach again:\n%+v\nwant\n%+v", again, first)
	}
	again := s.attachPrepared(t, p)
	if again.Addresses != first.Addresses || again.Pool != first.Pool {
		t.Errorf("Attach as at first: addresses %v of pool %q, want %v of %q", again.Addresses, again.Pool, first.Addresses, first.Pool)
	}
	s.detach(t, again, endpoint.DeleteConfig{})
	s.wants(t, first, false, "after three calls of Attach and one of Detach")
	s.wants(t, other, true, "after Detach of another endpoint")
}

func checkDetachAgain(t testing.TB, s Subject) {
	ep, other := s.attach(t, 1), s.attach(t, 2)
	for range 2 {
		s.detach(t, ep, endpoint.DeleteConfig{})
		s.wants(t, ep, false, "after Detach")
	}
	s.wants(t, other, true, "after Detach of another endpoint")
}

func checkDetachWithoutAttach(t testing.TB, s Subject) {
	other := s.attach(t, 2)
	s.detach(t, Endpoint(1), endpoint.DeleteConfig{}) // no step before it attached either
	p := s.prepare(t, 3)
	s.detach(t, p.Endpoint, endpoint.DeleteConfig{})
	s.wants(t, p.Endpoint, false, "after Detach alone")
	s.wants(t, other, true, "after Detach of another endpoint")
}

// checkDetachAfterPartialAttach ends the context of Attach when the step looks at it for the first time, the second
// time and so on.
func checkDetachAfterPartialAttach(t testing.TB, s Subject) {
	const most = 100
	p, other := s.prepare(t, 1), s.attach(t, 2)
	for looks := range most {
		ctx := endAfter(t.Context(), looks)
		ep, err := attachWithin(t, s, ctx, p)
		if err == nil {
			s.wants(t, ep, true, "after Attach")
		}
		s.detach(t, p.Endpoint, endpoint.DeleteConfig{})
		s.wants(t, p.Endpoint, false, "after Attach whose context ended, and Detach")
		s.wants(t, other, true, "after Detach of another endpoint")
		if !ctx.over() {
			if err != nil {
				t.Errorf("Attach: %v", err)
			}
			return // the step looks no more often than that
		}
	}
	t.Errorf("Attach looks at its context more than %d times", most)
}

// attachWithin fails the test when Attach goes on although its context has ended.
func attachWithin(t testing.TB, s Subject, ctx context.Context, p prepared) (ep endpoint.Endpoint, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ep, err = s.Step.Attach(ctx, p.Endpoint, p.namespace)
	}()
	select {
	case <-done:
		return ep, err
	case <-time.After(patience):
		t.Fatalf("Attach goes on for %s although its context has ended", patience)
		return ep, nil
	}
}

// checkDetachWithoutAdded is what the next agent does when one died between Attach and the record of it.
func checkDetachWithoutAdded(t testing.TB, s Subject) {
	ep, other := s.attach(t, 1), s.attach(t, 2)
	s.detach(t, endpoint.Endpoint{ID: ep.ID, Spec: ep.Spec}, endpoint.DeleteConfig{})
	s.wants(t, ep, false, "after Detach of an endpoint that lacks what Attach added")
	s.wants(t, other, true, "after Detach of another endpoint")
}

// checkSweep is a DEL of an attachment that the agent has no endpoint of: its number is another.
func checkSweep(t testing.TB, s Subject) {
	ep, other := s.attach(t, 1), s.attach(t, 2)
	unknown := endpoint.Endpoint{ID: 4711, Spec: endpoint.Spec{Attachment: ep.Spec.Attachment, Network: ep.Spec.Network}}
	s.detach(t, unknown, endpoint.DeleteConfig{Sweep: true, Network: ep.Spec.Network})
	s.wants(t, ep, false, "after Detach with Sweep")
	s.wants(t, other, true, "after Detach of another endpoint")
}

// checkDetachIncomplete allows the step to keep its part until the Detach that is whole.
func checkDetachIncomplete(t testing.TB, s Subject) {
	ep := s.attach(t, 1)
	s.detach(t, ep, endpoint.DeleteConfig{Incomplete: true})
	s.detach(t, ep, endpoint.DeleteConfig{})
	s.wants(t, ep, false, "after an incomplete Detach and a whole one")
}

// checkDetachWithEndedContext allows the step to fail, and wants it to succeed afterwards.
func checkDetachWithEndedContext(t testing.TB, s Subject) {
	ep := s.attach(t, 1)
	if err := s.Step.Detach(ended(t), ep, endpoint.DeleteConfig{}); err == nil {
		s.wants(t, ep, false, "after a Detach that succeeded")
	}
	s.detach(t, ep, endpoint.DeleteConfig{})
	s.wants(t, ep, false, "after Detach")
}

// checkConcurrent brings endpoints up and down side by side, while others stay.
func checkConcurrent(t testing.TB, s Subject) {
	staying := []endpoint.Endpoint{s.attach(t, 1), s.attach(t, 2)}
	var all []prepared
	for i := 3; i <= s.capacity(); i++ {
		all = append(all, s.prepare(t, i))
	}
	var wg sync.WaitGroup
	for _, p := range all {
		wg.Go(func() {
			ep, err := s.Step.Attach(t.Context(), p.Endpoint, p.namespace)
			if err == nil {
				_, err = s.Step.Restore(t.Context(), ep)
			}
			if err = errors.Join(err, s.Step.Detach(t.Context(), ep, endpoint.DeleteConfig{})); err != nil {
				t.Errorf("%s: %v", p.Spec.Attachment, err)
			}
		})
	}
	wg.Wait()
	for _, p := range all {
		s.wants(t, p.Endpoint, false, "after Detach, beside others")
	}
	for _, ep := range staying {
		s.wants(t, ep, true, "after Detach of other endpoints")
		if replaced := s.restore(t, ep); len(replaced) > 0 {
			t.Errorf("Restore of %s, which stayed, replaced %q", ep.Spec.Attachment, replaced)
		}
	}
}
