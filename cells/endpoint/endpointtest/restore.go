package endpointtest

import (
	"maps"
	"slices"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
)

func checkRestore(t testing.TB, s Subject) {
	ep := s.attach(t, 1)
	for range 2 {
		if replaced := s.restore(t, ep); len(replaced) > 0 {
			t.Errorf("Restore after Attach replaced %q, want nothing", replaced)
		}
		s.wants(t, ep, true, "after Restore")
	}
	s.detach(t, ep, endpoint.DeleteConfig{})
	s.wants(t, ep, false, "after Restore and Detach")
}

func checkRestoreAfterRestart(t testing.TB, s Subject) {
	ep, gone := s.attach(t, 1), s.attach(t, 2)
	s = s.restart(t)
	for range 2 {
		if replaced := s.restore(t, ep); len(replaced) > 0 {
			t.Errorf("Restore after a start of the agent replaced %q, want nothing", replaced)
		}
	}
	s.wants(t, ep, true, "after Restore")
	s.detach(t, gone, endpoint.DeleteConfig{}) // its deletion was on record when the agent ended
	s.wants(t, gone, false, "after a start of the agent and Detach")
	s.detach(t, ep, endpoint.DeleteConfig{})
	s.wants(t, ep, false, "after Restore and Detach")
}

// checkRestoreWithEndedContext allows the step to fail, and wants it to succeed afterwards.
func checkRestoreWithEndedContext(t testing.TB, s Subject) {
	ep := s.attach(t, 1)
	_, _ = s.Step.Restore(ended(t), ep)
	s.restore(t, ep)
	s.wants(t, ep, true, "after Restore")
}

func checkPrune(t testing.TB, s Subject) {
	pruner, ok := s.Step.(endpoint.Pruner)
	if !ok {
		return
	}
	live, stale := s.attach(t, 1), s.attach(t, 2)
	prune := func(live ...endpoint.Endpoint) []string {
		removed, err := pruner.Prune(t.Context(), live)
		if err != nil {
			t.Errorf("prune: %v", err)
		}
		return removed
	}
	if removed := prune(live, stale); len(removed) > 0 {
		t.Errorf("Prune removed %q, and all endpoints are alive", removed)
	}
	if removed := prune(live); len(removed) == 0 {
		t.Errorf("Prune names nothing, and %s is not alive", stale.Spec.Attachment)
	}
	s.wants(t, stale, false, "after Prune")
	s.wants(t, live, true, "after Prune")
	if replaced := s.restore(t, live); len(replaced) > 0 {
		t.Errorf("Restore after Prune replaced %q, want nothing", replaced)
	}
	if removed := prune(live); len(removed) > 0 {
		t.Errorf("Prune again removed %q, want nothing", removed)
	}
}

// checkRenew also reads the start time back, from a step that is a Finder.
func checkRenew(t testing.TB, s Subject) {
	renewer, ok := s.Step.(endpoint.Renewer)
	if !ok {
		return
	}
	ep := s.attach(t, 1)
	ep.Spec.Began += time.Minute
	for range 2 {
		if err := renewer.Renew(t.Context(), ep); err != nil {
			t.Errorf("renew: %v", err)
		}
	}
	if _, ok := s.Step.(endpoint.Finder); ok {
		found := s.find(t, nil)
		if !slices.ContainsFunc(found, func(f endpoint.Endpoint) bool {
			return f.Spec.Attachment == ep.Spec.Attachment && f.Spec.Began == ep.Spec.Began
		}) {
			t.Errorf("Find returns %+v, want %s that began %s after the boot", found, ep.Spec.Attachment, ep.Spec.Began)
		}
	}
	if replaced := s.restore(t, ep); len(replaced) > 0 {
		t.Errorf("Restore after Renew replaced %q, want nothing", replaced)
	}
}

// checkUpdate changes the labels and takes that back.
func checkUpdate(t testing.TB, s Subject) {
	updater, ok := s.Step.(endpoint.Updater)
	if !ok {
		return
	}
	ep := s.attach(t, 1)
	labelled := ep
	labelled.Metadata = `{"labels":{"app":"web"}}`
	for _, ep := range []endpoint.Endpoint{labelled, labelled, ep} {
		if err := updater.Update(t.Context(), ep); err != nil {
			t.Errorf("update: %v", err)
		}
		s.wants(t, ep, true, "after Update")
		if replaced := s.restore(t, ep); len(replaced) > 0 {
			t.Errorf("Restore after Update replaced %q, want nothing", replaced)
		}
	}
	s.detach(t, ep, endpoint.DeleteConfig{})
	s.wants(t, ep, false, "after Update and Detach")
}

func (s Subject) find(t testing.TB, known []endpoint.Endpoint) []endpoint.Endpoint {
	t.Helper()
	found, err := s.Step.(endpoint.Finder).Find(t.Context(), slices.Clone(known))
	if err != nil {
		t.Errorf("find: %v", err)
	}
	return found
}

// checkFind passes what the steps before would have found. Nothing of it may be lost, and nothing may change.
func checkFind(t testing.TB, s Subject) {
	if _, ok := s.Step.(endpoint.Finder); !ok {
		return
	}
	attached := []endpoint.Endpoint{s.attach(t, 1), s.attach(t, 2)}
	known := []endpoint.Endpoint{}
	for _, ep := range attached {
		known = append(known, endpoint.Endpoint{Spec: endpoint.Spec{Attachment: ep.Spec.Attachment, Began: ep.Spec.Began}, Host: ep.Host, MTU: ep.MTU})
	}
	for range 2 {
		found := s.find(t, known)
		for _, ep := range attached {
			if !slices.ContainsFunc(found, func(f endpoint.Endpoint) bool { return f.Spec.Attachment == ep.Spec.Attachment }) {
				t.Errorf("Find lost %s of what was found before: %+v", ep.Spec.Attachment, found)
			}
		}
	}
	for _, ep := range attached {
		s.wants(t, ep, true, "after Find")
		if replaced := s.restore(t, ep); len(replaced) > 0 {
			t.Errorf("Restore after Find replaced %q, want nothing", replaced)
		}
	}
}

func checkSurvey(t testing.TB, s Subject) {
	surveyor, ok := s.Step.(endpoint.Surveyor)
	if !ok {
		return
	}
	attached := []endpoint.Endpoint{s.attach(t, 1), s.attach(t, 2)}
	lost, err := surveyor.Survey(t.Context(), attached)
	if err != nil || len(lost) > 0 {
		t.Errorf("Survey: lost %v, error %v, want none of those attached", slices.Collect(maps.Keys(lost)), err)
	}
	for _, ep := range attached {
		s.wants(t, ep, true, "after Survey")
	}
}

// checkOccupy occupies what an endpoint of an earlier agent has, and gives the rest to others.
func checkOccupy(t testing.TB, s Subject) {
	if _, ok := s.Step.(endpoint.Occupier); !ok {
		return
	}
	held := s.attach(t, 1)
	s = s.restart(t)
	for range 2 {
		if err := s.Step.(endpoint.Occupier).Occupy(held); err != nil {
			t.Errorf("occupy: %v", err)
		}
	}
	for i := 2; i <= s.capacity(); i++ {
		other := s.attach(t, i)
		for _, addr := range other.Addresses.List() {
			if slices.Contains(held.Addresses.List(), addr) {
				t.Errorf("%s got %s, which is occupied for %s", other.Spec.Attachment, addr, held.Spec.Attachment)
			}
		}
	}
	s.detach(t, held, endpoint.DeleteConfig{})
	s.wants(t, held, false, "after Occupy and Detach")
}

// checkRemember passes the deletion of an endpoint, which is not brought back by it and may come again.
func checkRemember(t testing.TB, s Subject) {
	rememberer, ok := s.Step.(endpoint.Rememberer)
	if !ok {
		return
	}
	gone := s.attach(t, 1)
	s.detach(t, gone, endpoint.DeleteConfig{})
	s = s.restart(t)
	if s.Restart != nil {
		rememberer = s.Step.(endpoint.Rememberer)
	}
	rememberer.Remember([]endpoint.Deletion{
		{Endpoint: endpoint.Endpoint{Spec: endpoint.Spec{Attachment: Endpoint(2).Spec.Attachment}}}, // never known
		{Endpoint: gone, At: time.Now()},
	})
	s.wants(t, gone, false, "after Remember")
	again := s.attach(t, 1)
	s.wants(t, again, true, "after Remember and Attach")
}
