package bench

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// pluginPhase is what an ADD took before the agent had it.
const pluginPhase = "plugin"

// reportPhases shows where the time of the last n ADDs went, by the agent's own events.
func reportPhases(t *testing.T, r *report, s *system, n int) {
	t.Helper()
	var names []string
	times := map[string][]time.Duration{}
	for _, add := range addEvents(t, s, n) {
		for _, phase := range add.Phases {
			if times[phase.Name] == nil {
				names = append(names, phase.Name)
			}
			times[phase.Name] = append(times[phase.Name], phase.Duration)
		}
	}
	for _, name := range names {
		r.add("ADD phase "+name+" p50", s.name, percentile(times[name], 0.5), "ms")
	}
}

// addEvents are the agent's own events of the last n ADDs.
func addEvents(t *testing.T, s *system, n int) (list []v1.Event) {
	t.Helper()
	out, err := exec.Command(filepath.Join(testutil.Build(t), "porin"), "--socket", s.node.Socket, "events", "-o", "json").Output()
	if err != nil {
		t.Fatalf("porin events: %v", err)
	}
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var event v1.Event
		if err := decoder.Decode(&event); err != nil {
			t.Fatal(err)
		}
		if event.Type == v1.EventEndpointCreated {
			list = append(list, event)
		}
	}
	if len(list) < n {
		t.Fatalf("the agent tells of %d ADDs, want %d", len(list), n)
	}
	return list[len(list)-n:]
}
