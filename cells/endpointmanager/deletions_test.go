package endpointmanager

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/deletionrecords"
)

// Calls that are served meanwhile would wait behind all of them.
func TestDeletionRecordsAdmission(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int32
		m := started(t, t.TempDir(), &probe{detach: func() error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			return nil
		}})
		for i := range 2 * m.cfg.Parallel {
			a := endpoint.Attachment{ContainerID: fmt.Sprintf("c%d", i), IfName: "eth0"}
			if _, err := m.Create(t.Context(), specOf(a.String()), nil); err != nil {
				t.Fatal(err)
			}
			if err := deletionrecords.Put(m.cfg.deletionsPath(), deletionrecords.Record{ContainerID: a.ContainerID, IfName: a.IfName}); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.deletionRecords.deleteRecorded(t.Context()); err != nil || len(m.table.List()) != 0 {
			t.Errorf("left %v, error %v", m.table.List(), err)
		}
		if int(most.Load()) != m.cfg.Parallel {
			t.Errorf("%d at the same time, want %d", most.Load(), m.cfg.Parallel)
		}
	})
}

// A record of a container's deletion leaves what the agent has made itself, and does not wait for it.
func TestDeletionRecordsReserved(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	spec := specOf("c1:eth0")
	spec.Kind = endpoint.KindHealth
	if _, err := m.Create(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	if err := deletionrecords.Put(m.cfg.deletionsPath(), deletionrecords.Record{ContainerID: "c1"}); err != nil {
		t.Fatal(err)
	}
	if err := m.deletionRecords.deleteRecorded(t.Context()); err != nil {
		t.Error(err)
	}
	if list := m.table.List(); len(list) != 1 {
		t.Fatalf("endpoints %v, want the health endpoint", list)
	}
	if m.registry.find(spec.Attachment).hasDeletionRecord() {
		t.Error("the health endpoint is marked as if a record asked for its end")
	}
	if waiting, _, err := deletionrecords.Look(m.cfg.deletionsPath()); err != nil || len(waiting) > 0 {
		t.Errorf("records left: %v, %v", waiting, err)
	}
}
