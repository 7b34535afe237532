package endpointmanager

import (
	"slices"
	"testing"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/internal/boottime"
)

// The ledger may have an older container of a pod without the mark that it was superseded: the disk was full, or the
// agent is the first that knows of it.
func TestStartSupersedesOlderContainers(t *testing.T) {
	for _, p := range []ledger.Phase{ledger.Committed, ledger.Deleting} {
		dir := t.TempDir()
		m := started(t, dir, &probe{})
		for i, container := range []string{"c1", "c2"} {
			rec := recordFor(container, ledger.Committed, wallTime())
			rec.Endpoint.ID, rec.Told, rec.Boot = uint16(i+1), true, boottime.Now()
			rec.Endpoint.Spec.Pod.UID, rec.Endpoint.Spec.Began = "u1", time.Duration(i+1)
			if rec.Endpoint.Addresses = (endpoint.Addresses{}); container == "c1" {
				rec.Phase = p
			}
			if err := m.ledger.Put(rec); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := &probe{}
		m = started(t, dir, next)
		if want := []string{"deleted 1", "restored 2"}; !slices.Equal(next.told, want) {
			t.Errorf("phase %s: told %q, want %q", p, next.told, want)
		}
		if list := m.table.List(); len(list) != 1 || list[0].ID != 2 {
			t.Errorf("phase %s: left %+v, want the newer container's alone", p, list)
		}
	}
}
