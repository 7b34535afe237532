package bench

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// endpoints is how many the agent has when its memory and its restart are measured.
const endpoints = 250

func agent(t *testing.T, r *report) {
	s := porin(t, "porin", "10.200.0.0/16,fd00:200::/64")
	for range endpoints {
		s.attach(t, testutil.NewContainer(t))
	}
	before := status(t, s)
	if n := before.Endpoints["ready"]; n != endpoints {
		t.Fatalf("%d endpoints are ready, want %d", n, endpoints)
	}
	r.add("memory with 250 endpoints", "porin", residentMiB(t, s.agent.PID()), "MiB")
	var slowest time.Duration
	for range 5 {
		s.agent.Restart(t)
		slowest = max(slowest, s.agent.Started)
		after := status(t, s)
		if after.Restored.Adopted != endpoints || !after.Datapath.Adopted || fmt.Sprint(after.Datapath.Programs) != fmt.Sprint(before.Datapath.Programs) {
			t.Errorf("after a kill: %d adopted, programs %v, want %d, %v", after.Restored.Adopted, after.Datapath.Programs, endpoints, before.Datapath.Programs)
		}
	}
	r.add("memory with 250 endpoints, restored", "porin", residentMiB(t, s.agent.PID()), "MiB")
	r.add("kill to ready with 250 endpoints, slowest of 5", "porin", slowest.Seconds(), "s")
	r.atMost("memory with 250 endpoints", r.value("memory with 250 endpoints", "porin"), 45, " MiB")
	r.atMost("start with 250 endpoints, nothing loaded", slowest.Seconds(), 0.5, " s")
}

func status(t *testing.T, s *system) (status v1.Status) {
	t.Helper()
	if err := s.agent.Get("/v1/status", &status); err != nil {
		t.Fatal(err)
	}
	return status
}

// residentMiB is VmRSS: everything resident, the binary's pages too.
func residentMiB(t *testing.T, pid int) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	var kib float64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}
