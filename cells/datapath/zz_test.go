package datapath_test

import (
	"context"
	"log/slog"
	"testing"
	"fmt"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/engine"
)

func BenchmarkPolicyStep(b *testing.B) {
	n := newNode(b)
	q := policy.NewQueue(engine.Config{}, n.datapath.Enforcer(), slog.New(slog.DiscardHandler))
	q.Start()
	defer q.Stop(context.Background())
	must(b, q.Open(b.Context()))
	s := policy.NewStep(q)
	ep := endpointOf(b, 1)
	ep.Spec.Pod.Namespace="shop"; ep.Spec.Pod.Name="a"
	for range b.N {
		if _, err := s.Attach(b.Context(), ep, nil); err != nil { b.Fatal(err) }
		if err := s.Detach(b.Context(), ep, n.noCfg()); err != nil { b.Fatal(err) }
	}
	began := time.Now()
	if _, err := s.Attach(b.Context(), ep, nil); err != nil { b.Fatal(err) }
	fmt.Println(time.Since(began))
	time.Sleep(50*time.Millisecond)
	began = time.Now()
	s.Detach(b.Context(), ep, n.noCfg())
	fmt.Println("detach", time.Since(began))
}
