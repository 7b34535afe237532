package endpointtest

import (
	"context"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// Subject is a step to test, and how the test sees and prepares its surroundings.
type Subject struct {
	Step endpoint.Step
	// Has reports whether the step has anything for the attachment: in the kernel, in memory or wherever it keeps its
	// part.
	Has func(t testing.TB, ep endpoint.Endpoint) bool
	// Prepare adds to a new endpoint what the steps before this one add, and returns the container's namespace. When it
	// is nil, the step is the first, and needs no namespace.
	Prepare func(t testing.TB, ep endpoint.Endpoint) (endpoint.Endpoint, *endpoint.Namespace)
	// Restart returns the step of the next agent on the same kernel. When it is nil, the step itself goes on: it is
	// what outlives agents.
	Restart func(t testing.TB) endpoint.Step
	// Endpoints is how many endpoints the step has room for, at least 4; 0 is 16.
	Endpoints int
}

// TestStep holds a step to what [endpoint.Step] promises, and the optional interfaces that it implements:
// [endpoint.Pruner], [endpoint.Renewer], [endpoint.Updater], [endpoint.Finder], [endpoint.Surveyor],
// [endpoint.Occupier] and [endpoint.Rememberer]. newSubject returns a step that has nothing, for each test. Run it with
// the race detector.
func TestStep(t *testing.T, newSubject func(t *testing.T) Subject) {
	for _, check := range stepChecks {
		t.Run(check.name, func(t *testing.T) { check.run(t, newSubject(t)) })
	}
}

// stepChecks are the tests of a step. A test of an optional interface does nothing when the step does not implement it.
var stepChecks = []struct {
	name string
	run  func(t testing.TB, s Subject)
}{
	{"attach", checkAttach},
	{"attach again", checkAttachAgain},
	{"detach again", checkDetachAgain},
	{"detach without attach", checkDetachWithoutAttach},
	{"detach after partial attach", checkDetachAfterPartialAttach},
	{"detach without what was added", checkDetachWithoutAdded},
	{"detach without endpoint", checkSweep},
	{"detach incomplete", checkDetachIncomplete},
	{"detach with ended context", checkDetachWithEndedContext},
	{"restore", checkRestore},
	{"restore after restart", checkRestoreAfterRestart},
	{"restore with ended context", checkRestoreWithEndedContext},
	{"concurrent endpoints", checkConcurrent},
	{"prune", checkPrune},
	{"renew", checkRenew},
	{"update", checkUpdate},
	{"find", checkFind},
	{"survey", checkSurvey},
	{"occupy", checkOccupy},
	{"remember", checkRemember},
}

// patience bounds each call: a step that waits for what does not come must end with its context.
const patience = 30 * time.Second

// prepared is an endpoint that is about to be attached.
type prepared struct {
	endpoint.Endpoint
	namespace *endpoint.Namespace
}

func (s Subject) prepare(t testing.TB, i int) prepared {
	t.Helper()
	p := prepared{Endpoint: Endpoint(i)}
	if s.Prepare != nil {
		p.Endpoint, p.namespace = s.Prepare(t, p.Endpoint)
	}
	return p
}

func (s Subject) restart(t testing.TB) Subject {
	t.Helper()
	if s.Restart != nil {
		s.Step = s.Restart(t)
	}
	return s
}

func (s Subject) capacity() int {
	if s.Endpoints > 0 {
		return s.Endpoints
	}
	return 16
}

// attach returns endpoint number i when it is attached.
func (s Subject) attach(t testing.TB, i int) endpoint.Endpoint {
	t.Helper()
	return s.attachPrepared(t, s.prepare(t, i))
}

func (s Subject) attachPrepared(t testing.TB, p prepared) endpoint.Endpoint {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ep, err := s.Step.Attach(ctx, p.Endpoint, p.namespace)
	if err != nil {
		t.Fatalf("attach %s: %v", p.Spec.Attachment, err)
	}
	return ep
}

func (s Subject) detach(t testing.TB, ep endpoint.Endpoint, cfg endpoint.DeleteConfig) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	if err := s.Step.Detach(ctx, ep, cfg); err != nil {
		t.Errorf("detach %s: %v", ep.Spec.Attachment, err)
	}
}

func (s Subject) restore(t testing.TB, ep endpoint.Endpoint) (replaced []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	replaced, err := s.Step.Restore(ctx, ep)
	if err != nil {
		t.Errorf("restore %s: %v", ep.Spec.Attachment, err)
	}
	return replaced
}

// wants compares what the step has for an endpoint.
func (s Subject) wants(t testing.TB, ep endpoint.Endpoint, want bool, when string) {
	t.Helper()
	if got := s.Has(t, ep); got != want {
		t.Errorf("%s: the step has something for %s: %t, want %t", when, ep.Spec.Attachment, got, want)
	}
}
