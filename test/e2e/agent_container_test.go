package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/internal/testutil"
)

// containerCapabilities are the capabilities of the chart's containers: see TestContainerCapabilities.
var containerCapabilities = []string{"net_admin", "net_raw", "sys_admin"}

// inContainer runs a program as in an unprivileged container: with these capabilities, a private mount namespace, and a
// read-only /proc/sys.
func inContainer(capabilities ...string) testutil.Wrapper {
	all := "-all"
	for _, c := range capabilities {
		all += ",+" + c
	}
	return func(cmd *exec.Cmd) {
		script := `mount --make-rprivate / && mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro,nosuid,nodev,noexec /proc/sys &&
			exec setpriv --no-new-privs --bounding-set=` + all + ` --inh-caps=` + all + ` "$@"`
		cmd.Args = append([]string{"sh", "-c", script, "sh", cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	}
}

func newContainerRig(t *testing.T, flags ...string) *rig {
	t.Helper()
	testutil.Root(t)
	node, bin := testutil.NewNode(t), testutil.Build(t)
	r := &rig{T: t, node: node, empty: kernelState(t, node), agent: node.NewAgent(bin, flags...), api: client.New(node.Socket)}
	r.agent.Wrap = inContainer(containerCapabilities...)
	t.Cleanup(func() {
		r.agent.End()
		if t.Failed() {
			t.Log(r.agent.Log())
		}
	})
	t.Cleanup(r.api.Close)
	r.cni = node.NewCNI(t, testutil.CNIConfig{Bin: bin})
	r.agent.Start(t)
	return r
}

// A health endpoint ends with its agent's mount namespace, and the next agent makes it again with its addresses.
func TestContainer(t *testing.T) {
	r := newContainerRig(t, withHealth)
	pod, health := r.pod(), r.healthEndpoint()
	for name, end := range map[string]func(){"killed": func() { r.agent.Kill(t) }, "stopped": func() { r.agent.Stop(t) }} {
		end()
		r.agent.Start(t)
		after := r.healthEndpoint()
		if after.Addresses != health.Addresses {
			t.Errorf("%s: the health endpoint had %v and has %v", name, health.Addresses, after.Addresses)
		}
		if restored := r.status().Restored; restored.Adopted != 1 || restored.Undone != 0 {
			t.Errorf("%s: restored %+v, want the pod", name, restored)
		}
	}
	if log := r.agent.Log(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
		t.Error("the agent's log has warnings")
	}
	if err := testutil.Ping(r.node.Namespace, pod.ipv4, reach); err != nil {
		t.Error(err)
	}
	r.agrees()
}

// Each capability of the chart's containers is needed.
func TestContainerCapabilities(t *testing.T) {
	testutil.Root(t)
	for _, c := range []struct{ without, want string }{
		{"sys_admin", "a container needs the capability SYS_ADMIN"},
		{"net_admin", "operation not permitted"},
	} {
		node := testutil.NewNode(t)
		agent := node.NewAgent(testutil.Build(t), withHealth)
		agent.Wrap = inContainer(slices.DeleteFunc(slices.Clone(containerCapabilities), func(name string) bool { return name == c.without })...)
		err := agent.TryStart()
		agent.End()
		if log := agent.Log(); err == nil || !strings.Contains(log, c.want) {
			t.Errorf("without %s: error %v, want an end that says %q:\n%s", c.without, err, c.want, log)
		}
	}
	t.Run("net_raw", func(t *testing.T) {
		r := newContainerRig(t, withHealth)
		r.healthEndpoint()
		r.agent.Wrap = inContainer("net_admin", "sys_admin")
		r.agent.Restart(t)
		testutil.Eventually(t, func() error {
			if answer, err := r.api.Health(t.Context()); err != nil || !strings.Contains(answer.Endpoint.Error, "operation not permitted") {
				return fmt.Errorf("health %+v, %v", answer.Endpoint, err)
			}
			return nil
		})
	})
}

// porin-proxy applies HTTP and DNS rules in such a container, and the doctor says that it needs CAP_NET_RAW.
func TestContainerProxy(t *testing.T) {
	n, p := newExternal(t)
	serveNames(t, n.b)
	serveNames(t, n.d)
	p.kill()
	p = startProxyIn(t, n.one.node, testutil.Build(t), inContainer(containerCapabilities...))
	n.one.connected(p)
	n.ciliumPolicy(webAndNames)
	l, queries := n.load(false), n.queries()
	time.Sleep(time.Second)
	l.check(t, "requests")
	queries.check(t, "queries")

	p.kill()
	startProxyIn(t, n.one.node, testutil.Build(t), inContainer("net_admin", "sys_admin"))
	testutil.Eventually(t, func() error {
		if out := n.one.cli("doctor").out; !strings.Contains(out, "open a socket for replies: socket: operation not permitted") {
			return fmt.Errorf("without CAP_NET_RAW the doctor says %s", out)
		}
		return nil
	})
}
