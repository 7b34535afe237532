package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"porin.dev/porin/internal/testutil"
)

// system is a CNI plugin on a node of its own.
type system struct {
	name  string
	node  *testutil.Node
	agent *testutil.Agent // nil for the reference plugins
	list  *libcni.NetworkConfigList
	conf  *libcni.CNIConfig
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
		"type": name, "bridge": "cni0", "isGateway": true,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": filepath.Join(node.Dir, "ipam"),
			"ranges": []any{[]any{map[string]any{"subnet": "10.200.0.0/16"}}},
		},
	})
}

// porin is an agent that numbers pods from the prefixes.
func porin(t *testing.T, name, prefixes string) *system {
	t.Helper()
	node := testutil.NewNode(t)
	bin := testutil.Build(t)
	agent := node.StartAgent(t, bin, "--ipam-pod-cidr="+prefixes, "--ipam-quarantine=0s", "--log-level=warn")
	s := newSystem(t, name, node, bin, map[string]any{"type": "porin-cni", "socket": node.Socket, "stateDir": node.StateDir})
	s.agent = agent
	return s
}

func newSystem(t *testing.T, name string, node *testutil.Node, bin string, plugin map[string]any) *system {
	t.Helper()
	text, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": name, "plugins": []any{plugin}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	conf := libcni.NewCNIConfigWithCacheDir([]string{bin}, filepath.Join(node.Dir, "cni-cache"), nil)
	return &system{name: name, node: node, list: list, conf: conf}
}

func (s *system) runtimeConf(c *testutil.Container) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{ContainerID: c.ID, NetNS: c.Path(), IfName: c.IfName}
}

// add attaches the container and returns how long the call took. The calling thread must be locked and in the node's
// namespace, as a runtime's threads are: libcni starts the plugin from it.
func (s *system) add(c *testutil.Container) (*types100.Result, time.Duration, error) {
	began := time.Now()
	result, err := s.conf.AddNetworkList(context.Background(), s.list, s.runtimeConf(c))
	took := time.Since(began)
	if err != nil {
		return nil, took, fmt.Errorf("%s: ADD: %w", s.name, err)
	}
	newest, err := types100.NewResultFromResult(result)
	return newest, took, err
}

// attach is add for those who do not measure it.
func (s *system) attach(t *testing.T, c *testutil.Container) (result *types100.Result) {
	t.Helper()
	err := s.node.Do(func() (err error) {
		result, _, err = s.add(c)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// del detaches the container; add's rule holds.
func (s *system) del(c *testutil.Container) (time.Duration, error) {
	began := time.Now()
	err := s.conf.DelNetworkList(context.Background(), s.list, s.runtimeConf(c))
	if err != nil {
		return 0, fmt.Errorf("%s: DEL: %w", s.name, err)
	}
	return time.Since(began), nil
}
