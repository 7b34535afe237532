package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/supervisor"
)

// pruning is a step that has links in the kernel, and removes the links without an endpoint.
type pruning struct{ *finding }

func (p *pruning) Prune(_ context.Context, live []endpoint.Endpoint) (removed []string, err error) {
	for _, link := range p.links {
		if !slices.ContainsFunc(live, func(ep endpoint.Endpoint) bool { return ep.Spec.Attachment.HostEnd() == link.Host.Name }) {
			removed = append(removed, link.Host.Name)
		}
	}
	return removed, nil
}

// TestLedgerLost: health, resource, doctor and log tell the same of a ledger whose file is not there, or is another
// one.
func TestLedgerLost(t *testing.T) {
	for _, row := range []struct {
		name  string
		lose  func(path string) error
		state supervisor.State // a kubelet restarts an agent that is failing: beside another file that would remove endpoints
	}{
		{"removed", func(string) error { return nil }, supervisor.Failing},
		{"replaced", func(path string) error { return os.WriteFile(path, []byte("another one"), 0o600) }, supervisor.Degraded},
	} {
		t.Run(row.name, func(t *testing.T) {
			var log strings.Builder
			m := unstarted(t.TempDir(), &probe{})
			m.log = slog.New(slog.NewTextHandler(&log, nil))
			start(t, m)
			told := func() (state supervisor.State, resource capacity.Resource, found []doctor.Finding) {
				t.Helper()
				found, err := newChecker(m).Examine(t.Context(), "")
				if err != nil {
					t.Fatal(err)
				}
				return newHealth(m).Condition().State, newResources(m).Resources()[0], found
			}
			if state, resource, found := told(); state != supervisor.OK || resource.Err != nil || len(found) > 0 {
				t.Fatalf("before: %s, resource %+v, findings %+v", state, resource, found)
			}
			path := m.cfg.ledgerPath()
			if err := errors.Join(os.Rename(path, path+".away"), row.lose(path)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				state, resource, found := told()
				if state != row.state || resource.Err == nil || resource.Vital || resource.Finding != kindLedgerLost {
					t.Errorf("it is %s, with resource %+v", state, resource)
				}
				if len(found) != 1 || found[0].Kind != kindLedgerLost || found[0].Subject != path || found[0].Repair != nil {
					t.Errorf("the doctor finds %+v", found)
				}
			}
			if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
				t.Errorf("%d errors in the log, want one:\n%s", n, log.String())
			}
			if err := os.Rename(path+".away", path); err != nil {
				t.Fatal(err)
			}
			if state, resource, found := told(); state != supervisor.OK || resource.Err != nil || len(found) > 0 || !strings.Contains(log.String(), "the ledger is there again") {
				t.Errorf("when it is back: %s, resource %+v, findings %+v, log\n%s", state, resource, found, log.String())
			}
		})
	}
}

// TestHealthLedgerLostThenRestart: an agent whose ledger was removed is failing, and the next agent that a kubelet
// starts removes nothing.
func TestHealthLedgerLostThenRestart(t *testing.T) {
	dir := t.TempDir()
	m := withSteps(t, dir, &pruning{&finding{probe: &probe{}}})
	for _, a := range []string{"c2:eth0", "c3:eth0", "c4:eth0"} {
		if _, err := m.Create(t.Context(), specOf(a), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(m.cfg.ledgerPath()); err != nil {
		t.Fatal(err)
	}
	state := newHealth(m).Condition()
	if state.State != supervisor.Failing {
		t.Errorf("without its ledger the agent is %+v", state)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := withSteps(t, dir, &pruning{&finding{probe: &probe{}, links: hostEnds(4)[1:]}})
	if removed := next.Restored().Removed; len(removed) > 0 || len(next.Held()) != 3 {
		t.Errorf("the condition is %+v, and the restart that it asks for holds %d of 3 links of running containers and removes %v", state, len(next.Held()), removed)
	}
}

// TestNewLedgerHoldsLinks starts with a new ledger beside a link and a few map entries without one: no DEL can come for
// these.
func TestNewLedgerHoldsLinks(t *testing.T) {
	links := hostEnds(1)
	for i := range 3 {
		index := 90 + i
		links = append(links, endpoint.Endpoint{
			ID: uint16(index), Spec: endpoint.Spec{Attachment: endpoint.Unnamed(fmt.Sprintf("link/%d", index))}, Host: endpoint.Interface{Index: index},
		})
	}
	m := withSteps(t, t.TempDir(), &finding{probe: &probe{}, links: links})
	if held := m.Held(); len(held) != 1 || held[0].Endpoint.Host != links[0].Host {
		t.Errorf("held %+v, want the link alone", held)
	}
}
