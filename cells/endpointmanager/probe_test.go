package endpointmanager

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
)

// probe is a step and a subscriber that does what a test tells it.
type probe struct {
	pool string // of whoever attaches

	mu       sync.Mutex // guards the fields below
	attach   func(context.Context) error
	detach   func() error
	restore  func(Endpoint) error
	deleted  func(Endpoint)
	told     []string
	buried   []Deletion
	attached int
}

func (p *probe) Name() string { return "probe" }

func (p *probe) Attach(ctx context.Context, ep Endpoint, _ *Namespace) (Endpoint, error) {
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

func (p *probe) Detach(context.Context, Endpoint, DeleteConfig) error {
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

func (p *probe) Restore(_ context.Context, ep Endpoint) ([]string, error) {
	if p.restore != nil {
		return nil, p.restore(ep)
	}
	return nil, nil
}

func (p *probe) Remember(d []Deletion)        { p.buried = d }
func (p *probe) EndpointCreated(ep Endpoint)  { p.tell("created", ep) }
func (p *probe) EndpointRestored(ep Endpoint) { p.tell("restored", ep) }

func (p *probe) EndpointDeleted(ep Endpoint, _ DeleteConfig) {
	if p.deleted != nil {
		p.deleted(ep)
	}
	p.tell("deleted", ep)
}

func (p *probe) tell(what string, ep Endpoint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, fmt.Sprint(what, " ", ep.ID))
}

func unstarted(dir string, p *probe) *manager {
	cfg := DefaultConfig()
	cfg.StateDir = dir
	return build(Params{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Table: NewTable(), Steps: Steps{p}, Subscribers: []Subscriber{p},
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

func specOf(attachment string) Spec {
	a, err := ParseAttachment(attachment)
	if err != nil {
		panic(err)
	}
	return Spec{Attachment: a}
}
