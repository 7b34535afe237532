package policy

import (
	"fmt"
	"strings"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// BenchmarkAttach is what the step adds to an ADD and a DEL, without the kernel: on a node with 250 pods and 1,000
// policies.
func BenchmarkAttach(b *testing.B) {
	q := NewQueue(engine.Config{}, nil, nil, nil, quiet)
	q.Start(nil)
	defer q.Stop(b.Context())
	step := NewStep(q)
	for i := range 250 {
		if _, err := step.Restore(b.Context(), pod(i+1, fmt.Sprint("app", i%50))); err != nil {
			b.Fatal(err)
		}
	}
	var u update
	for i := range 1000 {
		p := policyOf(b, toWebFrom(fmt.Sprint("app", i%50)))
		p.ID.Name = fmt.Sprint("policy", i)
		u.policies.set(p.ID, &p)
	}
	q.collect(u)
	if err := q.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	for name, app := range map[string]string{"peer of 20 policies": "app1", "subject of 1,000 policies": "web"} {
		b.Run(name, func(b *testing.B) {
			ep := pod(251, app)
			for b.Loop() {
				if _, err := step.Attach(b.Context(), ep, nil); err != nil {
					b.Fatal(err)
				}
				if err := step.Detach(b.Context(), ep, endpoint.DeleteConfig{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkDiff evaluates 10,000 flows by one more policy, with 1,000 policies and 10,000 endpoints, 250 of these
// local.
func BenchmarkDiff(b *testing.B) {
	q := NewQueue(engine.Config{}, nil, nil, nil, quiet)
	q.Start(nil)
	defer q.Stop(b.Context())
	var u update
	var flows fakeFlows
	for i := range 10_000 {
		s, err := desiredOf(pod(i+1, fmt.Sprint("app", i%50)))
		if err != nil {
			b.Fatal(err)
		}
		s.Local = i < 250
		u.endpoints.set(s.Key, &s)
		flows = append(flows, Flow{From: s.Addresses[0], To: pod(i%250+1, "").Addresses.IPv4, Protocol: model.TCP, Port: 80})
	}
	for i := range 1000 {
		p := policyOf(b, strings.Replace(toWebFrom(fmt.Sprint("app", i%50)), "app: web", fmt.Sprint("app: app", i%49), 1))
		p.ID.Name = fmt.Sprint("policy", i)
		u.policies.set(p.ID, &p)
	}
	q.collect(u)
	if err := q.Open(b.Context()); err != nil {
		b.Fatal(err)
	}
	policies, endpoints := New(Config{}, q, quiet), endpointtest.NewEndpoints()
	proposed := []byte(strings.Replace(toWebFrom("app1"), "app: web", "app: app49", 1))
	for b.Loop() {
		d, err := policies.Diff(b.Context(), endpoints, flows, proposed, nil)
		if err != nil || len(d.Changes) == 0 {
			b.Fatalf("%d changes, %v", len(d.Changes), err)
		}
	}
}
