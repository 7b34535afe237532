package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestRuntimes attaches a container by the configuration that the agent writes, with the libraries and calls of each
// runtime.
func TestRuntimes(t *testing.T) {
	node := testutil.NewNode(t)
	list := filepath.Join(node.Dir, "net.d", "05-porin.conflist")
	r := rigOn(t, node, "--cni-conf-path="+list)
	loadList(t, list)
	runtimes := []struct{ name, version, calls string }{
		{"containerd-1.7", "1.0.0", "STATUS ADD DEL DEL"}, // its libcni refuses a result of version 1.1.0
		{"containerd-2", "1.1.0", "STATUS ADD DEL DEL"},
		{"cri-o", "1.1.0", "STATUS GC ADD CHECK GC DEL DEL"},
	}
	for _, row := range runtimes {
		t.Run(row.name, func(t *testing.T) {
			report, err := r.runtime(t, row.name, "STATUS", "GC", "ADD", "CHECK", "GC", "DEL", "DEL")
			must(t, err)
			if calls := strings.Join(report.Calls, " "); report.Version != row.version || calls != row.calls || len(report.IPs) != 2 {
				t.Errorf("version %s, calls %q, addresses %v, want %s, %q and two addresses", report.Version, calls, report.IPs, row.version, row.calls)
			}
			r.nothingLeft()
		})
	}

	r.agent.Stop(t)
	for _, row := range runtimes {
		if _, err := r.runtime(t, row.name, "STATUS"); err != nil {
			t.Errorf("%s: STATUS right after the agent stopped: %v", row.name, err)
		}
	}
	must(t, os.Remove(filepath.Join(node.StateDir, "heartbeat")))
	for _, row := range runtimes {
		_, err := r.runtime(t, row.name, "STATUS")
		switch {
		case row.name == "containerd-1.7": // asks whether there is a configuration, and not the plugin
			must(t, err)
		case err == nil || !strings.Contains(err.Error(), "no porin-agent has run on this node"):
			t.Errorf("%s: STATUS without an agent: %v", row.name, err)
		}
	}
}

type runtimeReport struct {
	Version    string
	IPs, Calls []string
}

// runtime makes calls for a new container. The libraries keep results in /var/lib/cni.
func (r *rig) runtime(t *testing.T, name string, calls ...string) (report runtimeReport, err error) {
	t.Helper()
	container := testutil.NewContainer(t)
	args := []string{"-m", "sh", "-c", `mount -t tmpfs none /var/lib && exec "$@"`, "sh", testutil.LibCNI(t, name), "-conf=" + filepath.Join(r.node.Dir, "net.d"),
		"-plugins=" + testutil.Build(t), "-id=" + container.ID, "-netns=" + container.Path()}
	var stdout, stderr bytes.Buffer
	cmd := exec.Command("unshare", append(args, calls...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	must(t, r.node.Do(cmd.Start))
	if err := cmd.Wait(); err != nil {
		return report, fmt.Errorf("%w: %s", err, stderr.String())
	}
	return report, json.Unmarshal(stdout.Bytes(), &report)
}
