package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// finding is a step that finds links.
type finding struct {
	*probe
	links    []endpoint.Endpoint
	findErr  error
	detached []endpoint.Endpoint
}

func (f *finding) Find(context.Context, []endpoint.Endpoint) ([]endpoint.Endpoint, error) {
	return f.links, f.findErr
}

func (f *finding) Detach(_ context.Context, ep endpoint.Endpoint, _ endpoint.DeleteConfig) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.detached = append(f.detached, ep)
	return nil
}

func withSteps(t *testing.T, dir string, steps ...endpoint.Step) *manager {
	t.Helper()
	m := unstarted(dir, &probe{})
	m.steps = steps
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Stop(context.Background()) })
	return m
}

// hostEnds are links of containers c1, c2 and so on. The first link does not name its container.
func hostEnds(n int) (links []endpoint.Endpoint) {
	for i := range n {
		a := endpoint.Attachment{ContainerID: fmt.Sprintf("c%d", i+1), IfName: "eth0"}
		ep := endpoint.Endpoint{ID: uint16(i + 1), Spec: endpoint.Spec{Attachment: a}, Host: endpoint.Interface{Name: a.HostEnd(), Index: i + 10}}
		if i == 0 {
			ep.Spec.Attachment = endpoint.Unnamed(ep.Host.Name)
		}
		links = append(links, ep)
	}
	return links
}

func TestHoldEndsForUnnamedLink(t *testing.T) {
	a := endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}
	for name, end := range map[string]func(*manager) error{
		"DEL": func(m *manager) error {
			return errors.Join(m.Delete(t.Context(), a, endpoint.DeleteConfig{Sweep: true}).Errors...)
		},
		"ADD": func(m *manager) error { _, err := m.Create(t.Context(), endpoint.Spec{Attachment: a}, nil); return err },
	} {
		dir := t.TempDir()
		f := &finding{probe: &probe{}, links: hostEnds(5)}
		m := withSteps(t, dir, f)
		if held := m.Held(); len(held) != 5 || unnamedOf(m, a) == nil {
			t.Fatalf("%s: held %+v", name, held)
		}
		if err := end(m); err != nil || len(m.Held()) != 4 || unnamedOf(m, a) != nil {
			t.Errorf("%s: error %v, held %+v", name, err, m.Held())
		}
		if len(f.detached) == 0 || f.detached[0].Host.Index != 10 {
			t.Errorf("%s: detached %+v, want the link of index 10 first", name, f.detached)
		}
	}
}

// TestHoldLearnsIPAMPlugin: the addresses of a link without a record may be another IPAM's, which its DEL names.
func TestHoldLearnsIPAMPlugin(t *testing.T) {
	f := &finding{probe: &probe{}, links: hostEnds(5)}
	m := withSteps(t, t.TempDir(), f)
	plugin := endpoint.IPAMPlugin{Type: "host-local", Config: "{}"}
	result := m.Delete(t.Context(), endpoint.Attachment{ContainerID: "c2", IfName: "eth0"}, endpoint.DeleteConfig{Sweep: true, IPAM: plugin, NetNS: "/netns"})
	if len(result.Errors) > 0 || result.Deleted != 1 || len(f.detached) != 1 || f.detached[0].Spec.IPAM != plugin {
		t.Errorf("result %+v, detached %+v", result, f.detached)
	}
}

// TestStartRemovesNothingUnseen: when the kernel's links cannot be listed, no step may prune.
func TestStartRemovesNothingUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it tries for more than a second
		m := unstarted(t.TempDir(), &probe{})
		no := errors.New("the kernel said no")
		m.steps = endpoint.Steps{&finding{probe: &probe{}, findErr: no}}
		if err := m.Start(t.Context()); !errors.Is(err, no) {
			t.Errorf("error %v, want the kernel's", err)
		}
	})
}

func TestHoldUnfinishedRecords(t *testing.T) {
	dir := t.TempDir()
	links := hostEnds(6)[1:]
	l, err := ledger.Open(unstarted(dir, nil).cfg.ledgerPath())
	if err != nil {
		t.Fatal(err)
	}
	for _, ep := range links { // killed after the link was made, before that was on record
		rec := ledger.Record{Phase: ledger.Intent, Endpoint: endpoint.Endpoint{ID: ep.ID, Spec: ep.Spec}}
		if err := l.Put(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, ep := range links { // map entries of such links, which are gone
		links = append(links, endpoint.Endpoint{ID: ep.ID, Spec: endpoint.Spec{Attachment: endpoint.Unnamed(fmt.Sprintf("link-%d", ep.Host.Index+100))}, Host: endpoint.Interface{Index: ep.Host.Index + 100}})
	}
	m := withSteps(t, dir, &finding{probe: &probe{}, links: links})
	if diff := cmp.Diff(0, len(m.Held())); diff != "" || m.Restored().Undone != 5 {
		t.Errorf("held %+v, restored %+v", m.Held(), m.Restored())
	}
}

// TestHoldOtherBoot: the kernel counts links from the beginning in each boot. The index in a record of another boot is
// of another link.
func TestHoldOtherBoot(t *testing.T) {
	dir := t.TempDir()
	m := withSteps(t, dir, &finding{probe: &probe{}})
	l := m.ledger
	for i, link := range hostEnds(6) {
		ep := endpoint.Endpoint{ID: link.ID, Spec: specOf(fmt.Sprintf("former%d:eth0", i)), Host: link.Host}
		ep.Host.Name = ep.Spec.Attachment.HostEnd()
		if err := l.Put(ledger.Record{Phase: ledger.Committed, Endpoint: ep}); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(l.SetOrigin(ledger.Origin{Boot: "another", NetNS: 1}), m.Stop(t.Context())); err != nil {
		t.Fatal(err)
	}
	f := &finding{probe: &probe{}, links: hostEnds(6)}
	m = withSteps(t, dir, f)
	if len(m.Held()) != 6 || m.Restored().Undone != 6 || len(f.detached) != 6 {
		t.Errorf("%d held, restored %+v, %d detached, want the links held and the records undone", len(m.Held()), m.Restored(), len(f.detached))
	}
	for _, ep := range f.detached {
		if ep.Host.Index != 0 {
			t.Errorf("detached the link of index %d, which is another's", ep.Host.Index)
		}
	}
}

// surveyor is a step that returns which endpoints have lost their link, unless err says that it cannot.
type surveyor struct {
	probe
	lost bool
	err  error
}

func (s *surveyor) Survey(_ context.Context, eps []endpoint.Endpoint) (map[endpoint.Attachment]error, error) {
	if s.err != nil {
		return nil, s.err
	}
	lost := map[endpoint.Attachment]error{}
	for _, ep := range eps {
		if s.lost {
			lost[ep.Spec.Attachment] = errors.New("no such link")
		}
	}
	return lost, nil
}

func TestHoldSurveyFails(t *testing.T) {
	dir := t.TempDir()
	m := started(t, dir, &probe{})
	const all = 6
	for i := range all {
		if _, err := m.Create(t.Context(), specOf(fmt.Sprintf("c%d:eth0", i)), nil); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []struct {
		name string
		step *surveyor
		held int
	}{
		{"all links are lost", &surveyor{lost: true}, all},
		{"nobody can look", &surveyor{err: errors.New("dump interrupted")}, all},
		{"they are back", &surveyor{}, 0},
	} {
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		m = unstarted(dir, &row.step.probe)
		m.steps = endpoint.Steps{row.step}
		start(t, m)
		if held := m.Held(); len(held) != row.held || len(m.table.List()) != all {
			t.Errorf("%s: %d held of %d, want %d of %d", row.name, len(held), len(m.table.List()), row.held, all)
		}
	}
}

func unnamedOf(m *manager, a endpoint.Attachment) *managed {
	m.registry.mu.Lock()
	defer m.registry.mu.Unlock()
	return m.registry.unnamedLocked(a, m.boot())
}
