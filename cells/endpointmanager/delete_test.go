package endpointmanager

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// What is neither done nor on record must be asked for again: a success would be the last that anybody hears of it.
func TestADeletionThatIsNotOnRecordIsNotASuccess(t *testing.T) {
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
			m.open = func(string) (ledger, error) {
				return memoryLedger{NewDisk(), func(string) error {
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
			result := m.Delete(t.Context(), spec.Attachment, DeleteConfig{})
			if got := errors.Is(errors.Join(result.Errors...), ErrPending); got != row.pending {
				t.Errorf("errors %v: %v that the caller must ask again, want %v", result.Errors, got, row.pending)
			}
		})
	}
}
