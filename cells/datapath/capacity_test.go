package datapath_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/datapath"
)

func TestCapacity(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	n.stop(t)
	n.cfg.MaxEndpoints = 2
	n.start(t)
	want := []capacity.Resource{{Name: "datapath-maps", Used: 2, Capacity: 2, Reserve: 1}}
	if diff := cmp.Diff(want, datapath.NewCapacitySource(n.datapath).Resources()); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	c := n.newPod(t, 3)
	if _, err := n.step.Attach(context.Background(), c.endpoint, c.netns); !errors.Is(err, datapath.ErrFull) {
		t.Errorf("one more: error %v, want %v", err, datapath.ErrFull)
	}
	n.detach(t, a)
	want[0].Used = 1
	if diff := cmp.Diff(want, datapath.NewCapacitySource(n.datapath).Resources()); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

func TestCapacityBeforeStart(t *testing.T) {
	d, err := datapath.New(datapath.DefaultConfig(), slog.New(slog.DiscardHandler))
	must(t, err)
	got := datapath.NewCapacitySource(d).Resources()
	if len(got) != 1 || !errors.Is(got[0].Err, datapath.ErrNotStarted) || got[0].Capacity != 4096 || got[0].Reserve != 40 {
		t.Errorf("resources %+v", got)
	}
}
