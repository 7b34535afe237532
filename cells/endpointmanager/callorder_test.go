package endpointmanager

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/boottime"
)

// TestLateADDDuringDEL: an ADD that finds its endpoint has met every deletion that was answered.
func TestLateADDDuringDEL(t *testing.T) {
	cfg := DefaultConfig()
	cfg.StateDir = t.TempDir()
	m := newUnmeasured(Params{Config: cfg, Log: slog.New(slog.DiscardHandler), Table: NewTable()})
	if err := m.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Stop(t.Context()) }()
	late := endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}, Began: time.Nanosecond}
	m.Delete(t.Context(), late.Attachment, endpoint.DeleteConfig{})
	// An ADD that was about to find its endpoint when the DEL came.
	if _, _, err := m.registry.admit(newManaged(m, late), nil); !errors.Is(err, ErrDeleted) {
		t.Errorf("error %v, want ErrDeleted", err)
	}
}

// A DEL that began earlier and comes later takes nothing back of what the later one forbids, over a restart too.
func TestLateDELKeepsNewerTime(t *testing.T) {
	now := boottime.Now()
	began := func(i int) time.Duration { return now - time.Second + time.Duration(i) }
	a := endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}
	rows := []struct {
		name string
		do   func(m *manager, p *probe)
	}{
		{"nobody knows the attachment", func(m *manager, _ *probe) {
			m.Delete(t.Context(), a, endpoint.DeleteConfig{Began: began(5)})
		}},
		{"the first try fails", func(m *manager, p *probe) {
			spec := specOf(a.String())
			spec.Began = began(1)
			if _, err := m.Create(t.Context(), spec, nil); err != nil {
				t.Fatal(err)
			}
			p.detach = func() error { return errors.New("the kernel said no") }
			if result := m.Delete(t.Context(), a, endpoint.DeleteConfig{Began: began(5)}); len(result.Errors) != 1 {
				t.Errorf("DEL: %+v", result)
			}
			p.detach = nil
		}},
	}
	for _, row := range rows {
		dir, p := t.TempDir(), &probe{}
		m := started(t, dir, p)
		m.cfg.RetryInterval = time.Hour // no retry meanwhile
		row.do(m, p)
		if result := m.Delete(t.Context(), a, endpoint.DeleteConfig{Began: began(3)}); len(result.Errors) > 0 {
			t.Errorf("%s: DEL: %+v", row.name, result)
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		m = started(t, dir, &probe{})
		late := specOf(a.String())
		late.Began = began(4)
		if _, err := m.Create(t.Context(), late, nil); !errors.Is(err, ErrDeleted) {
			t.Errorf("%s: an ADD that began before the later DEL: %v, want %v", row.name, err, ErrDeleted)
		}
	}
}
