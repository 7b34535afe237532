package ledger_test

import (
	"path/filepath"
	"testing"

	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/cells/endpointmanager/ledger/ledgertest"
)

func TestLedger(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		ledgertest.Run(t, func(t *testing.T) func() (ledger.Ledger, error) {
			path := filepath.Join(t.TempDir(), "ledger.db")
			return func() (ledger.Ledger, error) { return ledger.Open(path) }
		})
	})
	t.Run("memory", func(t *testing.T) {
		ledgertest.Run(t, func(*testing.T) func() (ledger.Ledger, error) {
			disk, pass := ledgertest.NewDisk(), func(string) error { return nil }
			return func() (ledger.Ledger, error) { return ledgertest.Memory{Disk: disk, Gate: pass}, nil }
		})
	})
}
