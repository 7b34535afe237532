package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// examined asks the doctor by the command line, whose exit code says whether all agrees.
func (r *rig) examined() (answer v1.Doctor) {
	r.Helper()
	done := r.cli("doctor", "-o", "json")
	if err := json.Unmarshal([]byte(done.out), &answer); err != nil {
		r.Fatalf("porin doctor: %v: %s%s", err, done.out, done.err)
	}
	if failed := len(answer.Findings)+len(answer.Errors) > 0; failed != (done.code == 1) || answer.Findings == nil {
		r.Errorf("porin doctor: exit code %d: %s%s", done.code, done.out, done.err)
	}
	return answer
}

// answered asks the doctor by the API, which is quicker.
func (r *rig) answered() v1.Doctor {
	r.Helper()
	answer, err := r.api.Doctor(r.Context(), "")
	if err != nil {
		r.Fatal(err)
	}
	return answer
}

// agrees waits until the doctor finds nothing any more. It looks again and again: what two looks have found, a second
// apart, is repaired.
func (r *rig) agrees() {
	r.Helper()
	testutil.Eventually(r, func() error {
		if answer := r.examined(); len(answer.Findings)+len(answer.Errors) > 0 {
			return fmt.Errorf("findings %+v, errors %v", answer.Findings, answer.Errors)
		}
		return nil
	})
}

func findingsGauge(kind, owner string) string {
	return fmt.Sprintf(`porin_doctor_findings{kind=%q,owner=%q}`, kind, owner)
}

// kindsOf are the findings about each endpoint, and "" has the others.
func kindsOf(findings []v1.Finding) map[string]map[string]int {
	kinds := map[string]map[string]int{}
	for _, f := range findings {
		if kinds[f.Endpoint] == nil {
			kinds[f.Endpoint] = map[string]int{}
		}
		kinds[f.Endpoint][f.Kind]++
	}
	return kinds
}

// TestDoctorNoFalseFindings, although a look may see a link between the moment when the plugin makes
// it and the one when the plugin calls.
func TestDoctorNoFalseFindings(t *testing.T) {
	t.Parallel()
	r := newRig(t, "--doctor-interval=1s", "--metrics-address="+metricsAddress, "--ipam-quarantine=0s", "--ipam-pod-cidr=10.9.0.0/24,fd00:9::/64")
	var loops sync.WaitGroup
	var running atomic.Int64
	for range 4 {
		c := testutil.NewContainer(t)
		running.Add(1)
		loops.Go(func() {
			defer running.Add(-1)
			for range 25 {
				if _, err := r.cni.Add(c); err != nil {
					t.Errorf("ADD: %v", err)
				}
				if err := r.cni.Del(c); err != nil {
					t.Errorf("DEL: %v", err)
				}
			}
		})
	}
	for running.Load() > 0 {
		for _, f := range r.examined().Findings {
			t.Errorf("found %+v", f)
		}
	}
	loops.Wait()
	r.agrees()
	for name, n := range r.metrics() {
		if strings.HasPrefix(name, "porin_doctor_repairs_total{") && n > 0 {
			t.Errorf("%s is %v", name, n)
		}
	}
	r.nothingLeft()
}
