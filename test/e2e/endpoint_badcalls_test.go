package e2e

import (
	"fmt"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

func TestBadCallsOfThePlugin(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	exec := func(command, config string, change func(*testutil.Container)) error {
		copied := *c
		change(&copied)
		_, err := r.cni.Exec(command, &copied, []byte(config))
		return err
	}
	same := func(*testutil.Container) {}
	config := fmt.Sprintf(`{"cniVersion":"1.1.0","name":"porin","type":"porin-cni","socket":%q}`, r.node.Socket)
	failedAs(t, exec("ADD", `{"cniVersion":"1.1.0","name":"porin","type":"porin-cni","socket":7}`, same), codeInvalidConfig)
	failedAs(t, exec("ADD", `{"cniVersion":"1.1.0","name":"porin","type":"porin-cni","mtu":-5,"socket":"`+r.node.Socket+`"}`, same), codeInvalidConfig)
	for name, change := range map[string]func(*testutil.Container){
		"path in the ID":        func(c *testutil.Container) { c.ID = "../../etc/passwd" },
		"empty ID":              func(c *testutil.Container) { c.ID = "" },
		"over-long ID":          func(c *testutil.Container) { c.ID = strings.Repeat("a", 5000) },
		"path in the interface": func(c *testutil.Container) { c.IfName = "../eth0" },
		"long interface":        func(c *testutil.Container) { c.IfName = "a-very-long-interface" },
	} {
		if err := exec("ADD", config, change); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	r.nothingLeft()
}

func TestBadCalls(t *testing.T) {
	r := newRig(t)
	good := r.pluginConfig()
	for name, c := range map[string]struct{ command, config string }{
		"no configuration":      {"ADD", ""},
		"no JSON":               {"ADD", "porin"},
		"half a configuration":  {"ADD", good[:len(good)/2]},
		"two configurations":    {"ADD", good + good},
		"a large configuration": {"ADD", `{"name":"` + strings.Repeat("a", 8<<20) + `"}`},
		"a deep configuration":  {"ADD", strings.Repeat("[", 1<<20)},
		"a future version":      {"ADD", strings.Replace(good, "1.1.0", "9.0.0", 1)},
		"no name":               {"ADD", strings.Replace(good, `"name":"porin",`, "", 1)},
		"an unknown command":    {"JUMP", good},
	} {
		if _, err := r.pluginWith(c.command, c.config); err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 1000 {
			t.Errorf("%s: error %.2000v, want one line", name, err)
		}
	}
	r.nothingLeft()
}

func TestBadNamespace(t *testing.T) {
	r := newRig(t)
	c := testutil.NewContainer(t)
	c.Close() // an ordinary file is left at its path
	_, err := r.cni.Add(c)
	failedWith(t, err, c.Path())
	r.nothingLeft()
	r.cni.MustDel(t, c)
}

func TestBadNamespacePaths(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{
		"", "/no/such/namespace", "relative", "/", "/dev/null", "/proc/self/ns/mnt", "/proc/self/ns/net", "/proc/1/ns/user", strings.Repeat("/long", 1000),
	} {
		_, err := r.plugin("ADD", "CNI_NETNS="+path)
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "CNI_NETNS") {
			t.Errorf("CNI_NETNS %.40q: error %v, want one line about it", path, err)
		}
	}
	r.nothingLeft()
}

func (r *rig) pluginConfig() string {
	return fmt.Sprintf(`{"cniVersion":"1.1.0","name":"porin","type":"porin-cni","socket":%q,"stateDir":%q}`, r.node.Socket, r.node.StateDir)
}

// plugin runs the plugin on an ordinary configuration, with these variables besides the usual.
func (r *rig) plugin(command string, environ ...string) ([]byte, error) {
	return r.pluginWith(command, r.pluginConfig(), environ...)
}

func (r *rig) pluginWith(command, config string, environ ...string) ([]byte, error) {
	exec := testutil.NodeExec{Node: r.node}
	path, err := exec.FindInPath("porin-cni", []string{testutil.Build(r)})
	if err != nil {
		r.Fatal(err)
	}
	usual := []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=c1", "CNI_IFNAME=eth0", "CNI_NETNS=/no/such", "CNI_PATH=/"}
	return exec.ExecPlugin(r.Context(), path, []byte(config), append(usual, environ...))
}
