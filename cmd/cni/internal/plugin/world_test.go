package plugin_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/agenttest"
	"porin.dev/porin/cmd/cni/internal/plugin"
	"porin.dev/porin/internal/rtnl"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

// world is a node with an agent, in which the plugin is called in this process.
type world struct {
	*testutil.Namespace
	t     testing.TB
	node  *rtnl.Conn
	agent *agenttest.Fake
	ipam  ipamPlugin
	dir   string
}

func newWorld(t testing.TB) *world {
	t.Helper()
	testutil.Root(t)
	dir, err := os.MkdirTemp("", "cni")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{Namespace: testutil.NetNS(t), t: t, agent: agenttest.New(filepath.Join(dir, "agent.sock")), dir: dir}
	w.node, w.ipam = w.Conn(t), newIPAMPlugin(t, dir)
	w.agent.Gone = func(ep v1.Endpoint) { _ = w.node.Do(rtnl.DelLink(ep.Host.Index)) }
	w.agent.Start(t)
	return w
}

// config is a network configuration with these members beside the usual.
func (w *world) config(more map[string]any) []byte {
	config := map[string]any{"cniVersion": "1.1.0", "name": "porin", "type": "porin-cni", "socket": w.agent.Socket, "timeout": "2s"}
	maps.Copy(config, more)
	text, err := json.Marshal(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return text
}

// answer is what the plugin printed and its exit code.
type answer struct {
	code           int
	stdout, stderr string
}

// call runs the plugin in the node's namespace. Env is added to the variables for the container, which may be nil.
func (w *world) call(command string, ctr *testutil.Container, more map[string]any, env ...string) answer {
	w.t.Helper()
	vars := map[string]string{"CNI_COMMAND": command, "CNI_PATH": w.ipam.dir, "PATH": os.Getenv("PATH")}
	if ctr != nil {
		vars["CNI_CONTAINERID"], vars["CNI_IFNAME"], vars["CNI_NETNS"] = ctr.ID, ctr.IfName, ctr.Path()
	}
	for i := 0; i+1 < len(env); i += 2 {
		vars[env[i]] = env[i+1]
	}
	var a answer
	var stdout bytes.Buffer
	stderr, err := os.CreateTemp(w.dir, "stderr") // a file, so that the IPAM plugin may have it
	if err != nil {
		w.t.Fatal(err)
	}
	defer stderr.Close()
	err = w.Do(func() error {
		a.code = plugin.Run(plugin.IO{
			Getenv: func(name string) string { return vars[name] }, Environ: func() []string { return environ(vars) },
			Stdin: bytes.NewReader(w.config(more)), Stdout: &stdout, Stderr: stderr,
		})
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	said, err := os.ReadFile(stderr.Name())
	if err != nil {
		w.t.Fatal(err)
	}
	a.stdout, a.stderr = stdout.String(), string(said)
	return a
}

func environ(vars map[string]string) (list []string) {
	for name, value := range vars {
		list = append(list, name+"="+value)
	}
	return list
}

// mustAdd attaches the container and returns the result, for the other commands.
func (w *world) mustAdd(ctr *testutil.Container, more map[string]any) json.RawMessage {
	w.t.Helper()
	a := w.call("ADD", ctr, more)
	if a.code != 0 {
		w.t.Fatalf("ADD: %s", a.stdout)
	}
	return json.RawMessage(a.stdout)
}
