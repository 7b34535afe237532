package e2e

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"

	"porin.dev/porin/internal/testutil"
)

// loadList reads a configuration list as a runtime does.
func loadList(t *testing.T, path string) (list *libcni.NetworkConfigList) {
	t.Helper()
	testutil.Eventually(t, func() (err error) { // it comes when the API serves, and so after the rig
		list, err = libcni.NetworkConfFromFile(path)
		return err
	})
	return list
}

func TestConflist(t *testing.T) {
	testutil.Root(t)
	for name, move := range map[string]func(*testutil.Node){
		"state and socket in one folder": func(n *testutil.Node) { n.StateDir = filepath.Dir(n.Socket) },
		"each in its own":                func(*testutil.Node) {},
	} {
		t.Run(name, func(t *testing.T) {
			node := testutil.NewNode(t)
			move(node)
			path := filepath.Join(node.Dir, "net.d", "05-porin.conflist")
			r := rigOn(t, node, "--cni-conf-path="+path)
			r.cni.List = loadList(t, path)
			if r.cni.List.CNIVersion != "1.1.0" || r.cni.List.Name != "porin" {
				t.Errorf("version %s, name %s", r.cni.List.CNIVersion, r.cni.List.Name)
			}
			p := r.pod()
			if err := testutil.Ping(p.Namespace, node.IPv4, reach); err != nil {
				t.Error(err)
			}
			if err := r.cni.Check(p.Container); err != nil {
				t.Errorf("CHECK: %v", err)
			}
			r.agent.Kill(t) // and a deletion record goes where the agent looks for it
			r.cni.MustDel(t, p.Container)
			r.agent.Start(t)
			r.nothingLeft()
		})
	}
}

func TestConflistReplaced(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	folder := t.TempDir()
	path := filepath.Join(folder, "05-porin.conflist")
	if err := os.WriteFile(path, []byte("of a previous version"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := rigOn(t, node, "--cni-conf-path="+path)
	loadList(t, path)
	r.agent.Stop(t)
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 1 {
		t.Fatalf("the folder has %v, %v", entries, err)
	}
	info, err := entries[0].Info()
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	r.cni.List = loadList(t, path)
	if err := r.cni.Status(); err != nil {
		t.Errorf("STATUS right after the agent stopped: %v", err)
	}
	if err := os.Remove(filepath.Join(r.node.StateDir, "heartbeat")); err != nil {
		t.Fatal(err)
	}
	failedAs(t, r.cni.Status(), codeNotAvailable)
}

func TestConflistAgentFails(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	path := filepath.Join(node.Dir, "05-porin.conflist")
	failingAgent(t, node, "--cni-conf-path="+path, "--bpf-root="+node.Dir)
	if _, err := os.Stat(path); err == nil {
		t.Errorf("there is %s", path)
	}
}
