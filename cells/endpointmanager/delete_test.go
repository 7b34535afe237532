package endpointmanager

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/cells/endpointmanager/ledger/ledgertest"
)

// TestDeleteContainerSkipsLaterLife deletes a container whose second interface is of a later ADD than the DEL.
func TestDeleteContainerSkipsLaterLife(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	for a, began := range map[string]time.Duration{"c1:eth0": 10, "c1:net1": 30} {
		spec := specOf(a)
		spec.Pod.UID += a // two pods, or one interface would supersede the other
		spec.Began = began
		if _, err := m.Create(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
	}
	result := m.DeleteContainer(t.Context(), "c1", endpoint.DeleteConfig{Began: 20})
	if result.Deleted != 1 || result.Skipped != 1 || len(result.Errors) != 0 {
		t.Errorf("%+v, want one deleted and one skipped", result)
	}
	var sum DeleteResult
	sum.add(result)
	if sum.Deleted != 1 || sum.Skipped != 1 {
		t.Errorf("the sum is %+v", sum)
	}
}

// TestDeleteNotRecorded: a deletion that is neither done nor on record must not be a success, for its caller would not
// ask again.
func TestDeleteNotRecorded(t *testing.T) {
	for _, row := range []struct {
		name    string
		writes  int // of the deletion, that the disk takes
		detach  error
		pending bool
	}{
		{"neither done nor on record", 0, unix.EBUSY, true},
		{"not done, and on record", 1, unix.EBUSY, false},
		{"done, and not on record", 0, nil, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			p := &probe{}
			left := -1 // writes until the disk is full; without a limit below zero
			m := unstarted(t.TempDir(), p)
			m.open = func(string) (ledger.Ledger, error) {
				return ledgertest.Memory{Disk: ledgertest.NewDisk(), Gate: func(string) error {
					if left == 0 {
						return unix.ENOSPC
					}
					left--
					return nil
				}}, nil
			}
			start(t, m)
			spec := specOf("c1:eth0")
			if _, err := m.Create(t.Context(), spec, nil); err != nil {
				t.Fatal(err)
			}
			left, p.detach = row.writes, func() error { return row.detach }
			result := m.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{})
			if got := errors.Is(errors.Join(result.Errors...), ErrPending); got != row.pending {
				t.Errorf("errors %v: %v that the caller must ask again, want %v", result.Errors, got, row.pending)
			}
		})
	}
}

// TestDeleteForce ends an endpoint with a step that can never be undone, and names it.
func TestDeleteForce(t *testing.T) {
	dir, p := t.TempDir(), &probe{}
	m := started(t, dir, p)
	spec := specOf("c1:eth0")
	if _, err := m.Create(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	p.detach = func() error { return unix.EBUSY }
	if result := m.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{}); len(result.Errors) != 1 || len(m.table.List()) != 1 {
		t.Fatalf("%+v, endpoints %v", result, m.table.List())
	}
	result := m.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{Force: true})
	if result.Deleted != 1 || len(result.Errors) != 0 || len(result.GivenUp) != 1 || !errors.Is(result.GivenUp[0], unix.EBUSY) {
		t.Errorf("%+v, want one deleted, and what was given up", result)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m = started(t, dir, p)
	if list := m.table.List(); len(list) != 0 {
		t.Errorf("after a restart %v", list)
	}
	p.detach = nil
	if _, err := m.Create(t.Context(), spec, nil); err != nil {
		t.Error(err)
	}
}

// losingAddress is a step whose address another one has by now, and whose Detach fails at first.
type losingAddress struct {
	*probe
	kept []bool // of each Detach: whether it must not release the address
}

func (l *losingAddress) Restore(context.Context, endpoint.Endpoint) ([]string, error) {
	return nil, ErrAddressNotTaken
}

func (l *losingAddress) Detach(_ context.Context, _ endpoint.Endpoint, cfg endpoint.DeleteConfig) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept = append(l.kept, cfg.NoIPRelease); len(l.kept) < 4 {
		return errors.New("the kernel said no")
	}
	return nil
}

// TestDeleteKeepsNoIPRelease: neither a retry nor a DEL releases the address of an endpoint that could not be brought
// back.
func TestDeleteKeepsNoIPRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		leaveOne(t, dir)
		step := &losingAddress{probe: &probe{}}
		m := withSteps(t, dir, step)
		time.Sleep(1500 * time.Millisecond)
		m.Delete(t.Context(), specOf("c1:eth0").Attachment, endpoint.DeleteConfig{})
		time.Sleep(time.Minute)
		step.mu.Lock()
		defer step.mu.Unlock()
		if want := []bool{true, true, true, true}; !slices.Equal(step.kept, want) {
			t.Errorf("told not to release the address: %v, want %v", step.kept, want)
		}
	})
}
