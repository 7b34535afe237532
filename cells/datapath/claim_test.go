package datapath_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/internal/testutil"
)

// Its ledger knows nothing of the first one's endpoints, so it would remove their map entries as nobody's.
func TestASecondAgentOnTheSameRootIsRefused(t *testing.T) {
	c, pods := newClinic(t, 2)
	second := &node{Namespace: testutil.NetNS(t), cfg: c.cfg}
	second.cfg.MaxEndpoints *= 2
	d, err := datapath.New(second.cfg, slog.New(slog.DiscardHandler))
	must(t, err)
	impatient, leave := context.WithCancel(t.Context())
	leave()
	err = second.Do(func() error { return d.Start(impatient) })
	if !errors.Is(err, datapath.ErrRootInUse) {
		t.Errorf("error %v, want %v", err, datapath.ErrRootInUse)
	}
	c.wantHealthy(t)
	must(t, ping(pods[0].Namespace, pods[1].endpoint.Addresses.IPv4))
	c.stop(t)
	must(t, second.tryStart(t, func(*datapath.Datapath) {}))
}

func TestAStartThatFailsGivesTheRootUp(t *testing.T) {
	c, _ := newClinic(t, 2)
	c.stop(t)
	tiny := c.cfg
	tiny.MaxEndpoints = 1
	if err := (&node{Namespace: c.Namespace, cfg: tiny}).tryStart(t, func(*datapath.Datapath) {}); !errors.Is(err, datapath.ErrIncompatible) {
		t.Errorf("error %v, want %v", err, datapath.ErrIncompatible)
	}
	c.start(t)
}
