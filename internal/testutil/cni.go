package testutil

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// CNIConfig says how a runtime on the node calls porin-cni. Zero fields have the values of an ordinary node.
type CNIConfig struct {
	Bin     string         // folder of porin-cni, and of those after it
	Version string         // of the specification; 1.1.0
	Network string         // porin
	Plugin  map[string]any // more keys of the plugin, or others than the usual: "type" and "socket"
	Chained []any          // configurations of plugins after it, in order
	Wrap    Wrapper        // of every process of the plugins
}

// CNI calls porin-cni as a container runtime does: through libcni, with a network configuration list, with the results
// of ADD cached for the other calls, as a process in the node's namespace.
type CNI struct {
	List *libcni.NetworkConfigList
	conf *libcni.CNIConfig
	exec *NodeExec
}

// NewCNI sets a runtime up on the node.
func (n *Node) NewCNI(t testing.TB, cfg CNIConfig) *CNI {
	t.Helper()
	plugin := map[string]any{"type": "porin-cni", "socket": n.Socket, "stateDir": n.StateDir, "capabilities": map[string]bool{"bandwidth": true, "ips": true, "portMappings": true}}
	for key, value := range cfg.Plugin {
		plugin[key] = value
	}
	text, err := json.Marshal(map[string]any{
		"cniVersion": orDefault(cfg.Version, "1.1.0"),
		"name":       orDefault(cfg.Network, "porin"),
		"plugins":    append([]any{plugin}, cfg.Chained...),
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := libcni.NetworkConfFromBytes(text)
	if err != nil {
		t.Fatal(err)
	}
	exec := &NodeExec{Node: n, Wrap: cfg.Wrap}
	return &CNI{
		List: list, exec: exec,
		conf: libcni.NewCNIConfigWithCacheDir([]string{cfg.Bin}, filepath.Join(n.Dir, "cni-cache"), exec),
	}
}

func orDefault(value, fallback string) string {
	if value == "" {
		return fallback
	}
	return value
}

func (c *CNI) runtimeConf(ctr *Container) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: ctr.ID, NetNS: ctr.Path(), IfName: ctr.IfName, Args: ctr.Args, CapabilityArgs: ctr.Caps,
	}
}

// Add attaches the container and returns the result in the version of the configuration.
func (c *CNI) Add(ctr *Container) (types.Result, error) {
	return c.AddContext(context.Background(), ctr)
}

// AddContext is Add whose plugin is killed (SIGKILL) when ctx ends.
func (c *CNI) AddContext(ctx context.Context, ctr *Container) (types.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return c.conf.AddNetworkList(ctx, c.List, c.runtimeConf(ctr))
}

// MustAdd is Add that fails the test, with the result in the newest version.
func (c *CNI) MustAdd(t testing.TB, ctr *Container) *types100.Result {
	t.Helper()
	result, err := c.Add(ctr)
	if err != nil {
		t.Fatalf("ADD of %.12s: %v", ctr.ID, err)
	}
	newest, err := types100.NewResultFromResult(result)
	if err != nil {
		t.Fatal(err)
	}
	return newest
}

// Del detaches the container.
func (c *CNI) Del(ctr *Container) error { return c.DelContext(context.Background(), ctr) }

// DelContext is Del whose plugin is killed (SIGKILL) when ctx ends.
func (c *CNI) DelContext(ctx context.Context, ctr *Container) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	return c.conf.DelNetworkList(ctx, c.List, c.runtimeConf(ctr))
}

// MustDel is Del that fails the test.
func (c *CNI) MustDel(t testing.TB, ctr *Container) {
	t.Helper()
	if err := c.Del(ctr); err != nil {
		t.Fatalf("DEL of %.12s: %v", ctr.ID, err)
	}
}

// Check asks whether the container is attached as its ADD said.
func (c *CNI) Check(ctr *Container) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return c.conf.CheckNetworkList(ctx, c.List, c.runtimeConf(ctr))
}

// Status asks whether the network can attach containers.
func (c *CNI) Status() error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	return c.conf.GetStatusNetworkList(ctx, c.List)
}

// GC removes every attachment of the network but these. Like a runtime's, it first detaches, one by one, the
// attachments that the cache knows and the list does not.
func (c *CNI) GC(valid ...*Container) error {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	args := &libcni.GCArgs{ValidAttachments: []types.GCAttachment{}}
	for _, ctr := range valid {
		args.ValidAttachments = append(args.ValidAttachments, types.GCAttachment{ContainerID: ctr.ID, IfName: ctr.IfName})
	}
	return c.conf.GCNetworkList(ctx, c.List, args)
}

// Exec runs porin-cni once with a command and a configuration that libcni would not send, and returns what it printed.
func (c *CNI) Exec(command string, ctr *Container, config []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	path, err := c.exec.FindInPath("porin-cni", c.conf.Path)
	if err != nil {
		return nil, fmt.Errorf("find the plugin: %w", err)
	}
	environ := []string{"CNI_COMMAND=" + command, "CNI_PATH=" + c.conf.Path[0]}
	if ctr != nil {
		environ = append(environ, "CNI_CONTAINERID="+ctr.ID, "CNI_IFNAME="+ctr.IfName, "CNI_NETNS="+ctr.Path())
	}
	return c.exec.ExecPlugin(ctx, path, config, environ)
}
