package flow

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/boottime"
)

func TestRecent(t *testing.T) {
	w := newWorld(t, 1)
	w.recent.size = 3
	w.pod(2, "client")
	to := func(port uint16) abi.FlowEvent {
		return toStack(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort+port, outside, port)))
	}
	_, start := w.Recent()
	w.tell(to(1), to(2), to(3), to(1), to(4), droppedFor(abi.DropMalformed, to(9)))
	flows, since := w.Recent()
	if !since.After(start) {
		t.Errorf("all are there since %s, want since the last one of port 2, after %s", since, start)
	}
	var got []string
	for _, f := range flows {
		got = append(got, fmt.Sprintf("%s %s:%d %s %d", f.From, f.To, f.Port, f.Protocol, f.Count))
		if f.LastSeen.Before(since) || time.Since(f.LastSeen) > time.Minute {
			t.Errorf("%s was seen last at %s", got[len(got)-1], f.LastSeen)
		}
	}
	want := []string{"10.0.0.2 198.51.100.9:4 TCP 1", "10.0.0.2 198.51.100.9:1 TCP 2", "10.0.0.2 198.51.100.9:3 TCP 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the latest three (-want +got):\n%s", diff)
	}
}

// TestRecentOfPods: addresses change their owners. Flows of a deleted pod are not reported as its successor's, nor as a
// flow from outside.
func TestRecentOfPods(t *testing.T) {
	w := newWorld(t, 1)
	w.pod(1, "web")
	first := w.pod(2, "client")
	request := shortcut(seen(2, abi.EventFromPod, tuple("10.0.0.2", clientPort, "10.0.0.1", httpPort)))
	wants := func(when string, want ...uint64) {
		t.Helper()
		flows, _ := w.Recent()
		var got []uint64
		for _, f := range flows {
			got = append(got, f.Count)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: flows seen %v times, want %v", when, got, want)
		}
	}
	w.tell(request, request)
	wants("of the first pod", 2)
	w.endpoints.Delete(2)
	w.directory.EndpointDeleted(first, endpoint.DeleteConfig{})
	wants("when the first pod is gone")
	w.tell(request)
	wants("told when the first pod is gone")
	w.pod(2, "other")
	wants("of a second pod that has sent nothing")
	later := request
	later.Time = uint64(boottime.Now())
	w.tell(later)
	wants("of the second pod", 1)
}
