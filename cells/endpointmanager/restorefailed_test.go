package endpointmanager

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// A fault of the node is none of its endpoints.
func TestRestoreMostFail(t *testing.T) {
	const all = 10
	for _, row := range []struct{ fail, held, left int }{
		{fail: 10, held: 10, left: 10},
		{fail: 6, held: 6, left: 10},
		{fail: 5, held: 0, left: 5}, // no more than half
		{fail: 1, held: 0, left: 9},
	} {
		t.Run(fmt.Sprint(row.fail), func(t *testing.T) {
			dir := t.TempDir()
			m := started(t, dir, &probe{})
			for i := range all {
				spec := specOf(fmt.Sprintf("c%d:eth0", i))
				if _, err := m.Create(t.Context(), spec, nil); err != nil {
					t.Fatal(err)
				}
			}
			restart := func(p *probe) {
				t.Helper()
				if err := m.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				m = started(t, dir, p)
			}
			broken := func(ep endpoint.Endpoint) error {
				if ep.Spec.Attachment.ContainerID < fmt.Sprintf("c%d", row.fail) || row.fail == all {
					return fault.New(fault.Invalid, "the kernel refuses it")
				}
				return nil
			}
			wants := func(when string, held, left int) {
				t.Helper()
				list := m.Held()
				if len(list) != held || len(m.table.List()) != left {
					t.Errorf("%s: %d held and %d left, want %d and %d", when, len(list), len(m.table.List()), held, left)
				}
				for _, one := range list {
					if one.Reason != RestoreFailed || one.Endpoint.State != endpoint.Held || one.Detail == "" {
						t.Errorf("%s: held %+v", when, one)
					}
				}
			}
			restart(&probe{restore: broken})
			wants("after the start", row.held, row.left)
			restart(&probe{restore: broken})
			wants("after the next", row.held, row.left)
			restart(&probe{})
			wants("when all is well", 0, row.left)
			for _, ep := range m.table.List() {
				if ep.State != endpoint.Ready {
					t.Errorf("%s is %s", ep.Spec.Attachment, ep.State)
				}
			}
		})
	}
}

// All endpoints are tried again together: the waiting of a start does not grow with their number.
func TestRestoreNodeFault(t *testing.T) {
	dir := t.TempDir()
	const all = 100
	synctest.Test(t, func(t *testing.T) {
		m := started(t, dir, &probe{})
		for i := range all {
			if _, err := m.Create(t.Context(), specOf(fmt.Sprintf("c%d:eth0", i)), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		tries, began := 0, time.Now()
		m = started(t, dir, &probe{restore: func(endpoint.Endpoint) error {
			tries++
			return errors.New("the kernel is short of memory")
		}})
		if took := time.Since(began); took < time.Second || took > 2*time.Second || tries != restoreTries*all || len(m.Held()) != all {
			t.Errorf("%d tries in %v, %d held, want %d in a second, %d", tries, took, len(m.Held()), restoreTries*all, all)
		}
	})
}
