package policy

import (
	"fmt"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/policy/engine"
)

// BenchmarkAttach is what the step adds to an ADD and a DEL, without the kernel: on a node with 250 pods and 1,000 policies.
func BenchmarkAttach(b *testing.B) {
	q := NewQueue(engine.Config{}, nil, quiet)
	q.Start()
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
