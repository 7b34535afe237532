package plugin

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cmd/cni/internal/agenttest"
	"porin.dev/porin/cmd/cni/internal/spec"
	"porin.dev/porin/internal/testutil"
)

// newAdd is an ADD that has not begun, on a node with an agent.
func newAdd(t *testing.T) (node *testutil.Namespace, ctr *testutil.Container, agent *agenttest.Fake, a *adding) {
	t.Helper()
	testutil.Root(t)
	dir, err := os.MkdirTemp("", "cni")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	node, ctr, agent = testutil.NetNS(t), testutil.NewContainer(t), agenttest.New(filepath.Join(dir, "agent.sock"))
	agent.Start(t)
	env := map[string]string{"CNI_COMMAND": "ADD", "CNI_CONTAINERID": ctr.ID, "CNI_IFNAME": ctr.IfName, "CNI_NETNS": ctr.Path()}
	config := `{"cniVersion":"1.1.0","name":"porin","socket":"` + agent.Socket + `"}`
	call, fault := spec.Read(func(name string) string { return env[name] }, strings.NewReader(config))
	if fault != nil {
		t.Fatal(fault)
	}
	if a, err = newAdding(newTask(call, now())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.close)
	return node, ctr, agent, a
}

func TestAFailureAfterAnyStepLeavesNothing(t *testing.T) {
	broken := errors.New("broken")
	for failing := range len((&adding{}).steps()) + 1 {
		node, ctr, agent, a := newAdd(t)
		steps := a.steps()
		name := append(steps[failing:], step{name: "the end"})[0].name
		before := append([]step{}, steps[:failing]...)
		err := node.Do(func() error {
			return runSteps(append(before, step{"broken", func() error { return broken }, nil}))
		})
		if !errors.Is(err, broken) {
			t.Errorf("before %s: error = %v", name, err)
		}
		for where, ns := range map[string]*testutil.Namespace{"node": node, "container": ctr.Namespace} {
			if links, err := ns.Conn(t).Links(); len(links) != 1 || err != nil {
				t.Errorf("before %s: links left in the %s: %+v, %v", name, where, links, err)
			}
		}
		if left := agent.Endpoints(); len(left) != 0 {
			t.Errorf("before %s: endpoints left: %v", name, left)
		}
	}
}

func TestIPv6ThatCannotBeTurnedOnIsSaid(t *testing.T) {
	node, ctr, agent, a := newAdd(t)
	ctr.Sysctl(t, "net/ipv6/conf/default/disable_ipv6", "1")
	readOnly(t, "/proc/sys")
	err := node.Do(func() error { return runSteps(a.steps()) })
	want := "turn IPv6 on for eth0 in the container: open /proc/sys/net/ipv6/conf/eth0/disable_ipv6: read-only file system; " +
		"allow it there (sysctl net.ipv6.conf.eth0.disable_ipv6=0), or give this node no IPv6 range"
	if err == nil || err.Error() != want {
		t.Errorf("error = %v", err)
	}
	if links, _ := node.Conn(t).Links(); len(links) != 1 || len(agent.Endpoints()) != 0 {
		t.Errorf("left: links %+v, endpoints %v", links, agent.Endpoints())
	}
}

// readOnly makes a folder read-only until the end of the test.
func readOnly(t *testing.T, path string) {
	t.Helper()
	err := errors.Join(
		unix.Mount(path, path, "", unix.MS_BIND, ""),
		unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

func TestWithoutACommandItSaysWhatItIs(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := Run(IO{Getenv: func(string) string { return "" }, Stdout: &stdout, Stderr: &stderr})
	if code != 0 || stdout.Len() > 0 || !strings.Contains(stderr.String(), "CNI plugin") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout.String(), stderr.String())
	}
}
