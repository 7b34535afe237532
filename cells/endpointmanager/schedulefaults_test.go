package endpointmanager_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/testutil"
)

// simFault breaks one rule of the manager or of its step. The zero value breaks none.
type simFault struct {
	name       string
	message    string // part of what the schedules report
	beforeAdd  func(endpointmanager.Service)
	arrivalDel bool // a DEL has the time of its arrival, and not of its call
	datapath   func(gatedStep) endpoint.Step
	noForget   bool // the kernel keeps the policies of endpoints that a previous agent attached
	liar       bool // the proxy says that it has layer 7 rules, and does not
	decidedDel bool // whether a DEL is older than the ADD is decided when it is posted, and not in its turn
	toldEarly  bool // subscribers are told of a deletion before its tombstone is on disk
}

// TestSchedulesFindFaults breaks a rule. A schedule must fail, or the schedules prove nothing about it. With FULL=1 it
// is each of the rules, one at a time, else another one in each run.
func TestSchedulesFindFaults(t *testing.T) {
	faults := []simFault{
		{name: "forgotten deletions", message: "is there after DEL", beforeAdd: endpointmanager.ForgetDeletions},
		{name: "forgotten pods", message: "published is", beforeAdd: endpointmanager.ForgetPods},
		{name: "stale DEL", message: "and is there: false", arrivalDel: true},
		{name: "hidden Attach error", message: "its address leads to link", datapath: func(s gatedStep) endpoint.Step { return silentStep{s} }},
		{name: "policies not forgotten", message: "the kernel has policies", noForget: true},
		{name: "proxy without rules", message: "is redirected with rules", liar: true},
		{name: "DEL decided when posted", message: "and is there: false", decidedDel: true},
		{name: "tombstone after the subscribers", message: "told twice", toldEarly: true},
		{name: "number free too early", datapath: func(s gatedStep) endpoint.Step { return freeingStep{s} }},
		{name: "no Detach after a failed Attach", message: "the kernel has", datapath: func(s gatedStep) endpoint.Step {
			return &forgetfulStep{gatedStep: s, failed: map[endpoint.Attachment]bool{}}
		}},
	}
	for _, fault := range testutil.Sample(faults...) {
		t.Run(strings.ReplaceAll(fault.name, " ", "_"), func(t *testing.T) {
			dir := scratch(t)
			for seed := uint64(1); seed <= 10_000; seed++ {
				log, err := tryFaulty(t, seed, dir, fault)
				switch {
				case err == nil:
				case strings.Contains(err.Error(), fault.message):
					return
				default:
					t.Fatalf("schedule %d reports something else than %q: %v\n%s", seed, fault.message, err, strings.Join(log, "\n"))
				}
			}
			t.Error("10,000 schedules pass with this fault")
		})
	}
}

// silentStep hides the errors of Attach, unless the caller has left.
type silentStep struct{ gatedStep }

func (s silentStep) Attach(ctx context.Context, ep endpoint.Endpoint, netns *endpoint.Namespace) (endpoint.Endpoint, error) {
	ep, _ = s.gatedStep.Attach(ctx, ep, netns)
	return ep, ctx.Err()
}

// forgetfulStep does not undo an Attach that failed.
type forgetfulStep struct {
	gatedStep
	mu     sync.Mutex // guards the field below
	failed map[endpoint.Attachment]bool
}

func (s *forgetfulStep) Attach(ctx context.Context, ep endpoint.Endpoint, netns *endpoint.Namespace) (endpoint.Endpoint, error) {
	ep, err := s.gatedStep.Attach(ctx, ep, netns)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed[ep.Spec.Attachment] = err != nil
	return ep, err
}

func (s *forgetfulStep) Detach(ctx context.Context, ep endpoint.Endpoint, cfg endpoint.DeleteConfig) error {
	s.mu.Lock()
	failed := s.failed[ep.Spec.Attachment]
	s.mu.Unlock()
	if failed {
		return nil
	}
	return s.gatedStep.Detach(ctx, ep, cfg)
}

// freeingStep has the endpoint's number given out again before the endpoint is gone.
type freeingStep struct{ gatedStep }

func (s freeingStep) Detach(ctx context.Context, ep endpoint.Endpoint, cfg endpoint.DeleteConfig) error {
	endpointmanager.FreeNumber(s.agent.service, ep.ID)
	return s.gatedStep.Detach(ctx, ep, cfg)
}

// earlySubscriber hears of the end of an endpoint before its tombstone is written, and not afterwards.
type earlySubscriber struct{ *publisher }

func (earlySubscriber) EndpointDeleted(endpoint.Endpoint, endpoint.DeleteConfig) {}

func (n *simNode) subscriberOf(a *simAgent) endpoint.Subscriber {
	if n.fault.toldEarly {
		return earlySubscriber{a.published}
	}
	return a.published
}

// tellEarly tells of the end of an endpoint whose tombstone is about to be written.
func (n *simNode) tellEarly(a *simAgent, write string) {
	attachment, ok := strings.CutPrefix(write, "ledger.bury ")
	if !ok || n.isDead(a.process) {
		return
	}
	for _, ep := range a.table.List() {
		if ep.Spec.Attachment.String() == attachment && a.published.knows(ep) {
			a.published.EndpointDeleted(ep, endpoint.DeleteConfig{})
		}
	}
}
