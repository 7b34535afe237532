package e2e

import (
	"sync"
	"testing"

	"porin.dev/porin/internal/testutil"
)

func TestAdmissionManyADDs(t *testing.T) {
	r := newRig(t, "--endpoint-parallel=1", "--metrics-address="+metricsAddress)
	var calls sync.WaitGroup
	containers := make([]*testutil.Container, 32)
	for i := range containers {
		containers[i] = testutil.NewContainer(t)
	}
	for _, c := range containers {
		calls.Go(func() {
			if _, err := r.cni.Add(c); err != nil {
				t.Errorf("ADD: %v", err)
			}
		})
	}
	calls.Wait()
	r.expect(map[string]float64{
		`porin_endpoint_phase_duration_seconds_count{operation="add",phase="admission"}`: 32,
		`porin_admission_waiting{lane="fair"}`:                                           0, `porin_admission_running{lane="fair"}`: 0,
	})
	if waited := r.metrics()[`porin_endpoint_phase_duration_seconds_sum{operation="add",phase="admission"}`]; waited <= 0 {
		t.Errorf("they waited %v s", waited)
	}
	for _, c := range containers {
		calls.Go(func() {
			if err := r.cni.Del(c); err != nil {
				t.Errorf("DEL: %v", err)
			}
		})
	}
	calls.Wait()
	r.expect(map[string]float64{`porin_endpoint_phase_duration_seconds_count{operation="del",phase="admission"}`: 32})
	r.nothingLeft()
}
