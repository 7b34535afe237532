package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"porin.dev/porin/cells/kubernetes/kubernetestest"
	"porin.dev/porin/internal/testutil"
)

// afterScript runs a shell script in the program's own mount namespace before the program.
func afterScript(script string, container testutil.Wrapper) testutil.Wrapper {
	return func(cmd *exec.Cmd) {
		container(cmd)
		cmd.Args[2] = "mount --make-rprivate / && " + script + " && " + cmd.Args[2]
	}
}

// On a node that lacks what the agent needs, its log names that. An agent that ends says in its last line what to do,
// too.
func TestBadNode(t *testing.T) {
	testutil.Root(t)
	readOnly := func(dir string) string {
		return fmt.Sprintf("mount --bind %[1]s %[1]s && mount -o remount,bind,ro %[1]s", dir)
	}
	full := func(dir string) string {
		return fmt.Sprintf("mount -t tmpfs -o size=8k tmpfs %[1]s && { dd if=/dev/zero of=%[1]s/filler bs=4k 2>/dev/null || true; }", dir)
	}
	for name, c := range map[string]struct {
		script func(n *testutil.Node, store, cni string) string
		lives  bool // the agent goes on trying
		want   string
	}{
		"no BPF file system": {func(n *testutil.Node, store, _ string) string {
			return "mount --bind " + store + " " + filepath.Dir(n.BPFRoot)
		}, false,
			`not on a BPF file system: run mount -t bpf bpf \S+ on the node`},
		"read-only BPF file system": {func(n *testutil.Node, _, _ string) string { return readOnly(filepath.Dir(n.BPFRoot)) }, false,
			`make a folder for BPF pins: .*: read-only file system: mount the file system writable`},
		"no BTF": {func(*testutil.Node, string, string) string { return "mount -t tmpfs tmpfs /sys/kernel/btf" }, false,
			`kernel lacks what Porin needs: .*/sys/kernel/btf/vmlinux: no such file or directory: use a kernel with CONFIG_DEBUG_INFO_BTF=y`},
		"read-only state": {func(n *testutil.Node, _, _ string) string { return readOnly(n.StateDir) }, false,
			`ledger\.db.*: read-only file system: mount the file system writable`},
		"full state": {func(n *testutil.Node, _, _ string) string { return full(n.StateDir) }, false,
			`ledger\.db.*: no space left on device: free space`},
		"read-only store": {func(_ *testutil.Node, store, _ string) string { return readOnly(store) }, true,
			`peers\.db.*: read-only file system`},
		"full store": {func(_ *testutil.Node, store, _ string) string { return full(store) }, true,
			`peers\.db.*: no space left on device`},
		"read-only CNI folder": {func(_ *testutil.Node, _, cni string) string { return readOnly(cni) }, true,
			`write the CNI configuration, without which the runtime does not find this plugin: .*: read-only file system`},
		"full CNI folder": {func(_ *testutil.Node, _, cni string) string { return full(cni) }, true,
			`write the CNI configuration, without which the runtime does not find this plugin: .*: no space left on device`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			node, cni := testutil.NewNode(t), t.TempDir()
			store := filepath.Join(node.Dir, "store")
			for _, dir := range []string{node.StateDir, store} {
				if err := os.Mkdir(dir, 0o700); err != nil {
					t.Fatal(err)
				}
			}
			flags := []string{"--cni-conf-path=" + filepath.Join(cni, "05-porin.conflist")}
			if !strings.HasSuffix(name, "CNI folder") { // which waits for the Kubernetes API
				flags = append(flags, "--store=kubernetes", "--kubeconfig="+kubernetestest.Kubeconfig(t, "http://127.0.0.1:1"))
			}
			agent := node.NewAgent(testutil.Build(t), flags...)
			t.Cleanup(agent.End)
			agent.Wrap = afterScript(c.script(node, store, cni), inContainer(containerCapabilities...))
			if err := agent.TryStart(); (err == nil) != c.lives {
				t.Errorf("start: %v, want an agent that lives: %t", err, c.lives)
			}
			testutil.Eventually(t, func() error {
				log := strings.TrimSpace(agent.Log())
				if !c.lives { // the message of the pod
					log = log[strings.LastIndex(log, "\n")+1:]
				}
				if !regexp.MustCompile(c.want).MatchString(log) {
					return fmt.Errorf("the log has %s\nwant %s", log, c.want)
				}
				return nil
			})
		})
	}
}
