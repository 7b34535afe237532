package endpointtest

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
)

// TestObserver holds an observer to the promises of [endpoint.Observer]. newObserver returns a new observer,
// for each test.
func TestObserver(t *testing.T, newObserver func(t *testing.T) endpoint.Observer) {
	for name, traces := range tracesByName() {
		t.Run(name, func(t *testing.T) { checkObserver(t, newObserver(t), traces) })
	}
}

// checkObserver passes the traces at the same time, each several times.
func checkObserver(t testing.TB, o endpoint.Observer, traces []endpoint.Trace) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, trace := range traces {
				promptly(t, "Observe", func() { o.Observe(trace) })
			}
		})
	}
	wg.Wait()
}

func tracesByName() map[string][]endpoint.Trace {
	failed := errors.New("the kernel said no")
	byName := map[string][]endpoint.Trace{"no phases": {{Operation: endpoint.OperationDel, Endpoint: endpoint.Endpoint{Spec: Endpoint(1).Spec}}}}
	for _, operation := range []endpoint.Operation{endpoint.OperationAdd, endpoint.OperationDel, endpoint.OperationRestore, endpoint.OperationRepair} {
		whole := endpoint.Trace{Operation: operation, Endpoint: ready(1), Began: time.Unix(1, 0), Duration: 2 * time.Millisecond, Phases: []endpoint.Phase{
			{Name: "plugin", Duration: time.Second}, {Name: "queue"}, {Name: "ipam", Duration: time.Millisecond}, {Name: "a-step-of-others", Duration: time.Millisecond},
		}}
		broken := whole
		broken.Err = fmt.Errorf("a-step-of-others: %w", failed)
		broken.Phases = append([]endpoint.Phase{}, whole.Phases...)
		broken.Phases[3].Err = failed
		broken.Phases = append(broken.Phases, endpoint.Phase{Name: "undo", Duration: time.Millisecond})
		byName[string(operation)] = []endpoint.Trace{whole, broken}
	}
	return byName
}
