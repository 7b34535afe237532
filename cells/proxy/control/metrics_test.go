package control

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"porin.dev/porin/cells/proxy/offline"
)

// TestNamesMetrics: what came of names is shown before the journal is open, and every result when it is.
func TestNamesMetrics(t *testing.T) {
	l := NewLearnRouter(ServerConfig{StateDir: t.TempDir(), Socket: "/nowhere"}, slog.New(slog.DiscardHandler))
	l.counts = offline.Counts{Learned: 5, Written: 7, Stale: 1, NotReserved: 2, Protected: 3, Full: 4}
	want := `# HELP porin_proxy_offline_addresses_written_total Addresses of names that porin-proxy has written into the datapath while no agent ran.
# TYPE porin_proxy_offline_addresses_written_total counter
porin_proxy_offline_addresses_written_total 7
`
	if err := testutil.CollectAndCompare(NewNamesCollector(l), strings.NewReader(want), "porin_proxy_offline_addresses_written_total"); err != nil {
		t.Error(err)
	}
	if err := l.tryOpen(); err != nil {
		t.Fatal(err)
	}
	if n := testutil.CollectAndCount(NewNamesCollector(l), "porin_proxy_offline_names_total"); n != 6 {
		t.Errorf("%d results, want 6", n)
	}
	if err := l.close(nil); err != nil {
		t.Fatal(err)
	}
}
