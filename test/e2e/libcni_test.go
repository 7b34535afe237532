package e2e

import (
	"bytes"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestRuntimesWithOtherLibCNI runs the configuration that the agent writes with the libraries of several runtimes:
// containerd 1.6 and 1.7 have libcni 1.1 and refuse a result of version 1.1.0.
func TestRuntimesWithOtherLibCNI(t *testing.T) {
	node := testutil.NewNode(t)
	list := filepath.Join(node.Dir, "net.d", "05-porin.conflist")
	r := rigOn(t, node, "--cni-conf-path="+list)
	loadList(t, list)
	for _, row := range []struct{ library, version, calls string }{
		{"1.1.2", "1.0.0", "ADD CHECK CHECK DEL DEL"},
		{"1.2.3", "1.1.0", "ADD CHECK STATUS GC CHECK DEL DEL"},
		{"1.3.1", "1.1.0", "ADD CHECK STATUS GC CHECK DEL DEL"},
	} {
		t.Run(row.library, func(t *testing.T) {
			container := testutil.NewContainer(t)
			var stdout, stderr bytes.Buffer
			cmd := exec.Command(testutil.LibCNI(t, row.library), "-list="+list, "-plugins="+testutil.Build(t),
				"-cache="+t.TempDir(), "-id="+container.ID, "-netns="+container.Path())
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			must(t, node.Do(cmd.Start))
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v: %s", err, stderr.String())
			}
			var report struct {
				Version    string
				IPs, Calls []string
			}
			must(t, json.Unmarshal(stdout.Bytes(), &report))
			if calls := strings.Join(report.Calls, " "); report.Version != row.version || calls != row.calls || len(report.IPs) != 2 {
				t.Errorf("version %s, calls %q, addresses %v, want %s, %q and two addresses", report.Version, calls, report.IPs, row.version, row.calls)
			}
			r.nothingLeft()
		})
	}
}
