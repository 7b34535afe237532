package datapath_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/testutil"
)

func TestRestartAdopts(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	if err := ping(a.Namespace, b.endpoint.Addresses.IPv4); err != nil {
		t.Fatal(err)
	}
	before, status := n.inspect(t), n.datapath.Status()
	if status.Adopted || len(status.Programs) != 4 {
		t.Errorf("status of the first start = %+v", status)
	}
	n.stop(t)
	if err := ping(a.Namespace, b.endpoint.Addresses.IPv4); err != nil {
		t.Errorf("while no agent runs: %v", err)
	}
	n.start(t)
	for _, p := range []*pod{a, b} {
		if _, err := n.step.Restore(context.Background(), p.endpoint); err != nil {
			t.Fatal(err)
		}
	}
	status.Adopted = true
	if diff := cmp.Diff(status, n.datapath.Status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	ignore := cmp.Options{cmpopts.IgnoreFields(loader.PinnedProgram{}, "Loaded"), cmpopts.IgnoreFields(loader.PinnedMap{}, "Entries")} // connections come and go
	if diff := cmp.Diff(before, n.inspect(t), ignore); diff != "" {
		t.Errorf("what is in the kernel (-before +after):\n%s", diff)
	}
	counted, err := n.datapath.Counters().Traffic(a.endpoint.ID)
	if err != nil || counted.FromPod.Packets < 2 {
		t.Errorf("counted %+v, error %v, want what was before as well", counted, err)
	}
}

func TestUpgrade(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	before := n.inspect(t)
	n.stop(t)
	if err := n.tryStart(t, (*datapath.Datapath).Upgrade); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*pod{a, b} {
		if _, err := n.step.Restore(context.Background(), p.endpoint); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.step.Prune(context.Background(), endpoints(a, b)); err != nil {
		t.Fatal(err)
	}
	after := n.inspect(t)
	if diff := cmp.Diff(before.Maps, after.Maps); diff != "" {
		t.Errorf("maps (-before +after):\n%s", diff)
	}
	if len(after.Programs) != 4 || after.Programs[0].Digest == before.Programs[0].Digest {
		t.Errorf("programs = %+v, want the four of the upgrade alone", after.Programs)
	}
	byID := map[uint32]string{}
	for _, p := range after.Programs {
		byID[p.ID] = p.Name
	}
	if len(after.Attachments) != 4 {
		t.Errorf("attachments = %+v, want one each way of two links", after.Attachments)
	}
	for _, at := range after.Attachments {
		if byID[at.ProgramID] != at.Name {
			t.Errorf("%+v is no program of the upgrade", at)
		}
	}
	if err := ping(a.Namespace, b.endpoint.Addresses.IPv6); err != nil {
		t.Error(err)
	}
}

// Its ledger knows nothing of the first one's endpoints, so it would remove their map entries as orphans.
func TestStartOnLockedRoot(t *testing.T) {
	c, pods := newCheckedNode(t, 2)
	second := &node{Namespace: testutil.NetNS(t), cfg: c.cfg}
	second.cfg.MaxEndpoints *= 2
	d, err := datapath.New(second.cfg, slog.New(slog.DiscardHandler))
	must(t, err)
	impatient, leave := context.WithCancel(t.Context())
	leave()
	err = second.Do(func() error { return d.Start(impatient) })
	if !errors.Is(err, loader.ErrRootInUse) {
		t.Errorf("error %v, want %v", err, loader.ErrRootInUse)
	}
	c.wantHealthy(t)
	must(t, ping(pods[0].Namespace, pods[1].endpoint.Addresses.IPv4))
	c.stop(t)
	must(t, second.tryStart(t, func(*datapath.Datapath) {}))
}

func TestFailedStartUnlocksRoot(t *testing.T) {
	c, _ := newCheckedNode(t, 2)
	c.stop(t)
	tiny := c.cfg
	tiny.MaxEndpoints = 1
	if err := (&node{Namespace: c.Namespace, cfg: tiny}).tryStart(t, func(*datapath.Datapath) {}); !errors.Is(err, loader.ErrIncompatible) {
		t.Errorf("error %v, want %v", err, loader.ErrIncompatible)
	}
	c.start(t)
}
