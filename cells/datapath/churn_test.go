package datapath_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/testutil"
)

// numbering is a step that gives each endpoint the addresses that it asks for.
type numbering struct{}

func (numbering) Name() string { return "ipam" }

func (numbering) Attach(_ context.Context, ep endpointmanager.Endpoint, _ *endpointmanager.Namespace) (endpointmanager.Endpoint, error) {
	ep.Addresses = ep.Spec.Requested
	return ep, nil
}

func (numbering) Detach(context.Context, endpointmanager.Endpoint, endpointmanager.DeleteConfig) error {
	return nil
}

func (numbering) Restore(context.Context, endpointmanager.Endpoint) ([]string, error) {
	return nil, nil
}

// Endpoints that come and go, by a real manager, are never found to be wrong, and neither are those that stay.
func TestNothingIsFoundWhileEndpointsComeAndGo(t *testing.T) {
	n := newNode(t)
	table := endpointmanager.NewTable()
	cfg := endpointmanager.DefaultConfig()
	cfg.StateDir = t.TempDir()
	manager := endpointmanager.New(endpointmanager.Params{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Table: table,
		Steps: endpointmanager.Steps{numbering{}, n.links, n.step},
	})
	must(t, manager.Start(t.Context()))
	defer func() { must(t, manager.Stop(context.Background())) }()
	const workers, rounds = 8, 30
	var group sync.WaitGroup
	for i := range workers {
		own := testutil.NetNS(t)
		group.Go(func() {
			for round := range rounds {
				spec := endpointOf(t, 1+i+round*workers).Spec
				spec.Requested = endpointOf(t, 1+i+round*workers).Addresses
				file, err := os.Open(own.Path())
				must(t, err)
				namespace, err := endpointmanager.OpenNamespace(file)
				must(t, err)
				if _, err = manager.Create(context.Background(), spec, namespace); err != nil {
					t.Errorf("create %s: %v", spec.Attachment, err)
				}
				for _, err := range manager.Delete(context.Background(), spec.Attachment, endpointmanager.DeleteConfig{}).Errors {
					t.Errorf("delete %s: %v", spec.Attachment, err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	checker := datapath.NewChecker(n.datapath, table, manager, n.links)
	var last map[string]bool
	for looks := 1; ; looks++ {
		findings, err := checker.Examine(context.Background(), "")
		if err != nil { // and goes on: the others work with what ends with the test
			t.Errorf("look %d: %v", looks, err)
		}
		found := map[string]bool{}
		for _, f := range findings {
			found[textOf(f)] = true
			if last[textOf(f)] || !strings.HasSuffix(f.Kind, "-orphan") {
				t.Errorf("look %d found %s: %s", looks, textOf(f), f.Detail)
			}
		}
		last = found
		select {
		case <-done:
			t.Logf("%d looks", looks)
			return
		default:
		}
	}
}
