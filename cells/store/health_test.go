package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/store"
	"porin.dev/porin/cells/store/storetest/etcdtest"
)

type reportersIn struct {
	fx.In

	All []server.StatusReporter `group:"server.reporters"`
}

// reported is what the status of an agent says of its store.
func (r *reportersIn) reported() v1.StoreStatus {
	status := v1.Status{}
	for _, one := range r.All {
		one.Report(&status)
	}
	return *status.Store
}

func TestStatusEtcdUnavailable(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, nil)
	wire := etcd.Wire(t)
	var s store.Store
	r := &reportersIn{}
	cfg := wire.Config(etcd.Config())
	cfg.Timeout = 3 * time.Second // a busy machine answers within it
	module(t, cfg, fx.Populate(&s), fx.Invoke(func(in reportersIn) { *r = in }))
	asked := r.reported() // nobody has asked before
	if !asked.Reachable || !strings.HasPrefix(asked.Location, "etcd at unix:") || asked.LastAnswer.IsZero() || asked.LastError != "" {
		t.Errorf("with etcd: %+v", asked)
	}
	wire.Hang()
	if _, err := s.Get(t.Context(), "a"); err == nil {
		t.Fatal("it answers")
	}
	away := r.reported()
	if away.Reachable || !away.Since.After(asked.Since) || away.LastError != "no answer in time" || away.LastErrorTime.IsZero() {
		t.Errorf("without etcd: %+v", away)
	}
	_, _ = s.Get(t.Context(), "a")
	if still := r.reported(); still.Since != away.Since || !still.LastErrorTime.After(away.LastErrorTime) {
		t.Errorf("after another call without etcd: %+v, want since %s", still, away.Since)
	}
	wire.Resume()
	testEventually(t, func() bool { _, _ = s.Get(t.Context(), "a"); return r.reported().Reachable })
	if back := r.reported(); !back.Since.After(away.Since) || back.LastError == "" {
		t.Errorf("with etcd again: %+v, want the last error to stay", back)
	}
}

// TestStatusIgnoresCallers ends calls from outside, and asks what cannot be: neither says anything of the store.
func TestStatusIgnoresCallers(t *testing.T) {
	cfg, _ := inFolder(t)
	var s store.Store
	r := &reportersIn{}
	module(t, cfg, fx.Populate(&s), fx.Invoke(func(in reportersIn) { *r = in }))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = s.Get(ended, "a")
	_, _ = s.Get(t.Context(), "A")
	if got := r.reported(); !got.Reachable || got.LastError != "" {
		t.Errorf("%+v", got)
	}
}
