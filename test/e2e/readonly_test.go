package e2e

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// A container that is not privileged has a read-only /proc/sys. Each ADD writes there, so the agent must not seem to be well.
func TestReadOnlySysctls(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	ctx, cancel := context.WithTimeout(t.Context(), reach)
	defer cancel()
	agent := exec.CommandContext(ctx, "sh", "-c", `mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec "$@"`, "sh",
		filepath.Join(testutil.Build(t), "porin-agent"), "--api-socket="+node.Socket, "--state-dir="+node.StateDir,
		"--bpf-root="+node.BPFRoot, "--ipam-pod-cidr=10.100.1.0/24")
	agent.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	var out []byte
	err := node.Do(func() (err error) {
		out, err = agent.CombinedOutput()
		return err
	})
	if err == nil || ctx.Err() != nil || !strings.Contains(string(out), "read-only file system") || !strings.Contains(string(out), "privileged: true") {
		t.Errorf("error %v, want an end that says what to do:\n%s", err, out)
	}
}
