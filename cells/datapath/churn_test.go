package datapath_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/datapathtest"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/ipamtest"
	"porin.dev/porin/internal/testutil"
)

// repairs fails the test when an endpoint is repaired.
type repairs struct{ t *testing.T }

func (r repairs) Observe(trace endpoint.Trace) {
	if trace.Operation == endpoint.OperationRepair {
		r.t.Errorf("repaired: %+v", trace)
	}
}

// Endpoints that come and go, by a real manager, are never found to be wrong, and neither are endpoints that stay.
// Follow repairs nothing of them, and leaves nothing.
func TestExamineDuringChurn(t *testing.T) {
	n := newNode(t)
	table := endpointmanager.NewTable()
	cfg := endpointmanager.DefaultConfig()
	cfg.StateDir = t.TempDir()
	manager := endpointmanager.New(endpointmanager.Params{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Table: table,
		Steps:     endpoint.Steps{ipamtest.New(t, "10.0.0.0/16", "fd00::/112"), n.links, n.step},
		Observers: []endpoint.Observer{repairs{t}},
	})
	must(t, manager.Start(t.Context()))
	defer func() { must(t, manager.Stop(context.Background())) }()
	checker := datapath.NewChecker(n.datapath, table, manager, n.links)
	ctx, cancel := context.WithCancel(context.Background())
	followed := make(chan error, 1)
	go func() { followed <- checker.Follow(ctx) }()
	defer func() {
		cancel()
		<-followed
		wantState(t, &realKernel{node: n}, datapathtest.State{})
	}()
	const workers, rounds = 8, 30
	var group sync.WaitGroup
	for i := range workers {
		own := testutil.NetNS(t)
		group.Go(func() {
			for round := range rounds {
				spec := endpointOf(t, 1+i+round*workers).Spec
				file, err := os.Open(own.Path())
				must(t, err)
				namespace, err := endpoint.OpenNamespace(file)
				must(t, err)
				if _, err = manager.Create(context.Background(), spec, namespace); err != nil {
					t.Errorf("create %s: %v", spec.Attachment, err)
				}
				for _, err := range manager.Delete(context.Background(), spec.Attachment, endpoint.DeleteConfig{}).Errors {
					t.Errorf("delete %s: %v", spec.Attachment, err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	var last map[string]bool
	for examinations := 1; ; examinations++ {
		findings, err := checker.Examine(context.Background(), "")
		if err != nil { // and goes on: the others work with what ends with the test
			t.Errorf("examination %d: %v", examinations, err)
		}
		found := map[string]bool{}
		for _, f := range findings {
			found[textOf(f)] = true
			if last[textOf(f)] || !strings.HasSuffix(f.Kind, "-orphan") {
				t.Errorf("examination %d found %s: %s", examinations, textOf(f), f.Detail)
			}
		}
		last = found
		select {
		case <-done:
			t.Logf("%d examinations", examinations)
			return
		default:
		}
	}
}
