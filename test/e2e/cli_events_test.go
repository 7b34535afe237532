package e2e

import (
	"bufio"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/internal/testutil"
)

// follow streams the agent's events from the oldest on. The channel is closed when the stream ends.
func (r *rig) follow() <-chan v1.Event {
	ctx, cancel := context.WithCancel(context.Background())
	stream, done := make(chan v1.Event, 100), make(chan struct{})
	go func() {
		defer close(done)
		defer close(stream)
		for event, err := range r.api.Events(ctx, client.EventOptions{Follow: true}) {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					r.Errorf("follow the events: %v", err)
				}
				return
			}
			stream <- event
		}
	}()
	r.Cleanup(func() { cancel(); <-done })
	return stream
}

// next wants an event of that type as the next one.
func (r *rig) next(stream <-chan v1.Event, kind string) v1.Event {
	r.Helper()
	select {
	case event := <-stream:
		if event.Type != kind {
			r.Fatalf("event %+v, want %s", event, kind)
		}
		return event
	case <-time.After(reach):
		r.Fatalf("no %s came", kind)
	}
	return v1.Event{}
}

// tells checks whose event it is, and that each phase of the operation is in it, in order.
func tells(t *testing.T, event v1.Event, p pod, operation string, phases ...string) {
	t.Helper()
	if event.Endpoint == nil || event.Endpoint.ContainerID != p.ID || event.Endpoint.Addresses.IPv4 != p.ipv4 || event.Operation != operation {
		t.Errorf("%s of %.12s: %+v", operation, p.ID, event)
	}
	var names []string
	for _, phase := range event.Phases {
		names = append(names, phase.Name)
		if phase.Duration < 0 || phase.Duration > reach || phase.Error != "" {
			t.Errorf("%s: phase %+v", operation, phase)
		}
	}
	if !slices.Equal(names, phases) {
		t.Errorf("%s has the phases %v, want %v", operation, names, phases)
	}
}

func TestEvents(t *testing.T) {
	r := newRig(t)
	stream := r.follow()
	r.next(stream, v1.EventAgentReady)
	a := r.pod()
	created := r.next(stream, v1.EventEndpointCreated)
	tells(t, created, a, "add", "plugin", "queue", "admission", "ledger-intent", "ipam", "link", "bandwidth", "hostport", "policy", "proxy", "datapath", "ledger-commit")
	b := r.pod()
	r.next(stream, v1.EventEndpointCreated)
	r.cni.MustDel(t, a.Container)
	deleted := r.next(stream, v1.EventEndpointDeleted)
	tells(t, deleted, a, "del", "plugin", "queue", "admission", "ledger-intent", "datapath", "proxy", "policy", "hostport", "bandwidth", "link", "ipam", "ledger-commit")
	if deleted.Seq != created.Seq+2 || deleted.Time.Before(created.Time) {
		t.Errorf("deleted is event %d at %s, created %d at %s", deleted.Seq, deleted.Time, created.Seq, created.Time)
	}
	r.agent.Stop(t)
	r.next(stream, v1.EventAgentStopping)
	if event, more := <-stream; more {
		t.Errorf("after the agent stopped: %+v", event)
	}

	r.agent.Start(t)
	stream = r.follow()
	tells(t, r.next(stream, v1.EventEndpointRestored), b, "restore", "ipam", "link", "bandwidth", "hostport", "policy", "proxy", "datapath")
	r.next(stream, v1.EventAgentReady)
}

func TestEventsFailedADD(t *testing.T) {
	r := newRig(t, "--ipam-pod-cidr=10.9.0.0/30")
	stream := r.follow()
	r.next(stream, v1.EventAgentReady)
	r.pod()
	r.next(stream, v1.EventEndpointCreated)
	c := testutil.NewContainer(t)
	if _, err := r.cni.Add(c); err == nil {
		t.Fatal("the pool is not exhausted")
	}
	failed := r.next(stream, v1.EventEndpointFailed)
	if failed.Endpoint.ContainerID != c.ID || failed.Operation != "add" || !strings.Contains(failed.Error, "no free address") {
		t.Errorf("event %+v", failed)
	}
}

func TestEventsFollowInterrupt(t *testing.T) {
	r := newRig(t)
	cmd := exec.Command(filepath.Join(testutil.Build(t), "porin"), "--socket", r.node.Socket, "events", "--follow")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(processTimeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(out)
	p := r.pod()
	for lines.Scan() && !strings.Contains(lines.Text(), p.ID[:12]) {
	}
	_ = cmd.Process.Signal(unix.SIGINT)
	for lines.Scan() {
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(r.cli("events", "--since", "1").out, p.ipv4.String()) {
		t.Errorf("porin events --follow ended with %v", err)
	}
}
