package bench

import (
	"encoding/json"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// system is a CNI plugin on a node of its own, and the runtime that calls it.
type system struct {
	name     string
	node     *testutil.Node
	agent    *testutil.Agent // nil for the reference plugins
	commands *json.Encoder   // to the runtime
	answers  *json.Decoder   // from it
}

// builtPlugins is the folder of ptp, bridge and host-local, which make bench builds from the version in go.mod: in
// the namespaces of the tests there is no way to download a module.
func builtPlugins(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("PORIN_PLUGIN_DIR")
	if dir == "" {
		t.Fatal("PORIN_PLUGIN_DIR is not set: run make bench")
	}
	return dir
}

// reference is a reference plugin with host-local, its state on a tmpfs as Porin's. IPv4 alone: with IPv6 they wait
// for duplicate address detection, which would flatter us.
func reference(t *testing.T, plugins, name string) *system {
	t.Helper()
	node := testutil.NewNode(t)
	return newSystem(t, name, node, plugins, map[string]any{
		"type": name, "bridge": "cni0", "isGateway": true, "ipam": hostLocal(node),
	})
}

func hostLocal(node *testutil.Node) map[string]any {
	return map[string]any{
		"type": "host-local", "dataDir": filepath.Join(node.Dir, "ipam"),
		"ranges": []any{[]any{map[string]any{"subnet": "10.200.0.0/16"}}},
	}
}

// porin is an agent that numbers pods from the prefixes.
func porin(t *testing.T, name, prefixes string) *system {
	t.Helper()
	return porinWith(t, testutil.NewNode(t), name, nil, "--ipam-pod-cidr="+prefixes, "--ipam-quarantine=0s")
}

// baseline is a system with another build of Porin, for figures beside this one's; or none.
func baseline(t *testing.T, prefixes string) []*system {
	t.Helper()
	bin := os.Getenv("PORIN_BASELINE_DIR")
	if bin == "" {
		return nil
	}
	return []*system{porinFrom(t, bin, testutil.NewNode(t), "porin-baseline", nil, "--ipam-pod-cidr="+prefixes, "--ipam-quarantine=0s")}
}

// porinWith is an agent with these flags, and these keys of the plugin's configuration besides the usual ones.
func porinWith(t *testing.T, node *testutil.Node, name string, keys map[string]any, flags ...string) *system {
	t.Helper()
	return porinFrom(t, testutil.Build(t), node, name, keys, flags...)
}

// porinFrom takes the binaries from a folder.
func porinFrom(t *testing.T, bin string, node *testutil.Node, name string, keys map[string]any, flags ...string) *system {
	t.Helper()
	agent := node.StartAgent(t, bin, append(flags, "--log-level=warn")...)
	plugin := map[string]any{"type": "porin-cni", "socket": node.Socket, "stateDir": node.StateDir}
	maps.Copy(plugin, keys)
	path := bin
	if keys["ipam"] != nil {
		agent.Configure(append(flags, "--log-level=warn", "--cni-bin-dirs="+builtPlugins(t))...)
		agent.Restart(t)
		path += string(filepath.ListSeparator) + builtPlugins(t)
	}
	s := newSystem(t, name, node, path, plugin)
	s.agent = agent
	return s
}

// newSystem takes the path that plugins are found on, and the configurations of the measured ones.
func newSystem(t *testing.T, name string, node *testutil.Node, path string, plugins ...map[string]any) *system {
	t.Helper()
	list, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": name, "plugins": plugins})
	if err != nil {
		t.Fatal(err)
	}
	s := &system{name: name, node: node}
	s.startRuntime(t)
	s.send(t, setup{Plugins: path, Cache: filepath.Join(node.Dir, "cni-cache"), List: list})
	return s
}

// startRuntime starts a runtime in the node's namespace. It ends with its input: at the end of the test or with us.
func (s *system) startRuntime(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), envRuntime+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.node.Do(cmd.Start); err != nil {
		t.Fatalf("%s: start a runtime: %v", s.name, err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: its runtime: %v", s.name, err)
		}
	})
	s.commands, s.answers = json.NewEncoder(stdin), json.NewDecoder(stdout)
}

func (s *system) send(t *testing.T, message any) {
	t.Helper()
	if err := s.commands.Encode(message); err != nil {
		t.Fatalf("%s: send to its runtime: %v", s.name, err)
	}
}

// call lets the runtime add or del the containers, so many at once, and fails the test when one of them fails.
func (s *system) call(t *testing.T, op string, parallel int, containers ...*testutil.Container) (a answer) {
	t.Helper()
	c := command{Op: op, Parallel: parallel}
	for _, each := range containers {
		c.Containers = append(c.Containers, container{ID: each.ID, NetNS: each.Path(), Args: each.Args})
	}
	s.send(t, c)
	if err := s.answers.Decode(&a); err != nil {
		t.Fatalf("%s: no answer of its runtime: %v", s.name, err)
	}
	for _, call := range a.Calls {
		if call.Error != "" {
			t.Errorf("%s: %s: %s", s.name, op, call.Error)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return a
}

// attach is an unmeasured add. It returns the container's addresses.
func (s *system) attach(t *testing.T, c *testutil.Container) []netip.Addr {
	t.Helper()
	return s.call(t, "add", 1, c).Calls[0].IPs
}
