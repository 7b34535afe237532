package endpointmanager

import (
	"context"
	"errors"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/boottime"
)

func TestLateADDOfOlderContainer(t *testing.T) {
	p := &probe{}
	m := started(t, t.TempDir(), p)
	newer, older := specOf("c1:eth0"), specOf("c1:eth0")
	newer.Began = boottime.Now()
	older.Began = newer.Began - time.Second
	older.NetNSCookie = 1 // of a namespace that is not there any more
	if _, err := m.Create(t.Context(), newer, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Create(t.Context(), older, nil); !errors.Is(err, ErrSuperseded) {
		t.Errorf("error %v, want %v", err, ErrSuperseded)
	}
	if list := m.table.List(); len(list) != 1 || list[0].Spec.NetNSCookie != 0 || p.attached != 1 {
		t.Errorf("%d attached, left %+v, want the newer", p.attached, list)
	}
}

// The DEL ends the ADD, and nothing of it is ever on record but that the attachment was deleted.
func TestCancelingDELOutlivesAgent(t *testing.T) {
	dir, spec := t.TempDir(), specOf("c1:eth0")
	attaching := make(chan struct{})
	spec.Began = boottime.Now()
	p := &probe{}
	m := started(t, dir, p)
	p.attach = func(ctx context.Context) error {
		close(attaching)
		<-ctx.Done()
		return ctx.Err()
	}
	failed := make(chan error, 1)
	go func() {
		_, err := m.Create(t.Context(), spec, nil)
		failed <- err
	}()
	<-attaching
	if result := m.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{}); len(result.Errors) > 0 {
		t.Fatal(result.Errors)
	}
	if err := <-failed; !errors.Is(err, ErrDeleted) {
		t.Errorf("ADD: %v, want %v", err, ErrDeleted)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m = started(t, dir, &probe{})
	if _, err := m.Create(t.Context(), spec, nil); !errors.Is(err, ErrDeleted) {
		t.Errorf("ADD after a restart: %v, want %v", err, ErrDeleted)
	}
}
