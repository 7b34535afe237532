package endpointmanager

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
)

// probe is a step and a subscriber that does what a test tells it.
type probe struct {
	pool string // of whoever attaches

	mu       sync.Mutex // guards the fields below
	attach   func(context.Context) error
	detach   func() error
	restore  func(endpoint.Endpoint) error
	deleted  func(endpoint.Endpoint)
	told     []string
	buried   []endpoint.Deletion
	attached int
	configs  []endpoint.DeleteConfig // of each Detach
}

func (p *probe) Name() string { return "probe" }

func (p *probe) Attach(ctx context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	if p.attach != nil {
		if err := p.attach(ctx); err != nil {
			return ep, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attached++
	ep.Pool = p.pool
	return ep, nil
}

func (p *probe) Detach(_ context.Context, _ endpoint.Endpoint, config endpoint.DeleteConfig) error {
	p.mu.Lock()
	p.configs = append(p.configs, config)
	p.mu.Unlock()
	if p.detach != nil {
		if err := p.detach(); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.attached--
	return nil
}

func (p *probe) Restore(_ context.Context, ep endpoint.Endpoint) ([]string, error) {
	if p.restore != nil {
		return nil, p.restore(ep)
	}
	return nil, nil
}

func (p *probe) Remember(d []endpoint.Deletion)        { p.buried = d }
func (p *probe) EndpointCreated(ep endpoint.Endpoint)  { p.tell("created", ep) }
func (p *probe) EndpointRestored(ep endpoint.Endpoint) { p.tell("restored", ep) }
func (p *probe) EndpointUpdated(ep endpoint.Endpoint)  { p.tell("updated", ep) }

func (p *probe) EndpointDeleted(ep endpoint.Endpoint, _ endpoint.DeleteConfig) {
	if p.deleted != nil {
		p.deleted(ep)
	}
	p.tell("deleted", ep)
}

func (p *probe) tell(what string, ep endpoint.Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, fmt.Sprint(what, " ", ep.ID))
}

func unstarted(dir string, p *probe) *manager {
	cfg := DefaultConfig()
	cfg.StateDir = dir
	return newUnmeasured(Params{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Table: NewTable(), Steps: endpoint.Steps{p}, Subscribers: []endpoint.Subscriber{p},
	})
}

func started(t *testing.T, dir string, p *probe) *manager {
	t.Helper()
	m := unstarted(dir, p)
	start(t, m)
	return m
}

func start(t *testing.T, m *manager) {
	t.Helper()
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

// leaveOne leaves the ledger of an agent that had one endpoint, c1:eth0.
func leaveOne(t *testing.T, dir string) {
	t.Helper()
	m := started(t, dir, &probe{})
	if _, err := m.Create(t.Context(), specOf("c1:eth0"), nil); err != nil {
		t.Fatal(err)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func specOf(attachment string) endpoint.Spec {
	a, err := endpoint.ParseAttachment(attachment)
	if err != nil {
		panic(err)
	}
	return endpoint.Spec{Attachment: a}
}

func recordFor(container string, p ledger.Phase, at time.Time) ledger.Record {
	return ledger.Record{
		Phase: p, Endpoint: endpoint.Endpoint{ID: 1, Spec: endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: container, IfName: "eth0"}}},
		At: at, Boot: time.Duration(at.UnixNano()),
	}
}
