package cleanup

import (
	"context"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/health"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks(), testutil.HostUntouched()) }

func testConfig(t *testing.T) Config {
	dir := t.TempDir()
	state := filepath.Join(dir, "run")
	return Config{
		Server: server.Config{Socket: filepath.Join(state, "agent.sock")}, EndpointManager: endpointmanager.Config{StateDir: state}, Health: health.Config{StateDir: state},
		ProxySocket: filepath.Join(state, "proxy.sock"), BPFRoot: filepath.Join(testutil.BPFFS(t), "porin"), StoreDir: filepath.Join(dir, "lib"),
		CNIConfPath: filepath.Join(dir, "net.d", "05-porin.conflist"), PluginDirs: []string{filepath.Join(dir, "bin")},
	}
}

// clean returns what Clean prints in a namespace.
func clean(ns *testutil.Namespace, cfg Config) (string, error) {
	var out strings.Builder
	err := ns.Do(func() error { return Clean(context.Background(), cfg, &out) })
	return out.String(), err
}

// TestCleanNothing has nothing to remove, and leaves no folder of its own.
func TestCleanNothing(t *testing.T) {
	ns, cfg := testutil.NetNS(t), testConfig(t)
	if out, err := clean(ns, cfg); err != nil || strings.Contains(out, "removed") {
		t.Errorf("%v\n%s", err, out)
	}
	for _, path := range []string{cfg.EndpointManager.StateDir, cfg.StoreDir, cfg.BPFRoot} {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is there", path)
		}
	}
}

// write makes files with their folders.
func write(t *testing.T, text string, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCleanFiles removes Porin's files in every form that an interruption leaves, and no others.
func TestCleanFiles(t *testing.T) {
	ns, cfg := testutil.NetNS(t), testConfig(t)
	state, store := cfg.EndpointManager.StateDir, cfg.StoreDir
	own := []string{
		state + "/ledger.db.new", state + "/heartbeat.tmp", state + "/deletions/lock", state + "/deletions/ab.delete", state + "/deletions/12.tmp", state + "/health.netns", state + "/proxy.sock.lock",
		store + "/names.damaged", store + "/store.db", store + "/node-key.new", cfg.PluginDirs[0] + "/porin-cni", cfg.PluginDirs[0] + "/.porin-cni.new",
	}
	others := []string{state + "/ledger.db.backup", state + "/deletions/notes", store + "/old/store.db", cfg.PluginDirs[0] + "/bridge"}
	write(t, "", slices.Concat(own, others)...)
	write(t, `{"name": "other", "plugins": [{"type": "bridge"}, {"type": "porin-cni"}]}`, cfg.CNIConfPath)
	out, err := clean(ns, cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range own {
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("%s is left\n%s", path, out)
		}
	}
	for _, path := range append(others, cfg.CNIConfPath) {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
	for _, text := range []string{"left file " + cfg.CNIConfPath + ":", "left " + store + "/old:", "left " + state + "/deletions/notes:"} {
		if !strings.Contains(out, text) {
			t.Errorf("it does not say %q:\n%s", text, out)
		}
	}
	write(t, `{"plugins": [{"type": "porin-cni"}, {"type": "tuning"}]}`, cfg.CNIConfPath)
	if _, err := clean(ns, cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(cfg.CNIConfPath); !os.IsNotExist(err) {
		t.Errorf("%s is left", cfg.CNIConfPath)
	}
}

// TestCleanKernel removes routes and rules of Porin's protocols in all tables, and no link whose name is only like one
// of Porin's.
func TestCleanKernel(t *testing.T) {
	testutil.NeedPrograms(t, "nft")
	ns, cfg := testutil.NetNS(t), testConfig(t)
	handle := ns.Netlink(t)
	lo, err := handle.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	rule := func(protocol uint8) *netlink.Rule {
		r := netlink.NewRule()
		r.Family, r.Table, r.Priority, r.Protocol = netlink.FAMILY_V6, 300, int(protocol), protocol
		return r
	}
	route := func(prefix string, table, protocol int) *netlink.Route {
		return &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: nl.IPNet(netip.MustParsePrefix(prefix)), Table: table, Protocol: netlink.RouteProtocol(protocol)}
	}
	hostEnd := v1.HostInterfaceName("c1", "eth0")
	for _, err := range []error{
		handle.RouteAdd(route("192.0.2.0/24", 254, nl.Protocol)), handle.RouteAdd(route("2001:db8::/64", 300, node.RouteProtocol)), handle.RouteAdd(route("198.51.100.0/24", 300, 4)),
		handle.RuleAdd(rule(nl.Protocol)), handle.RuleAdd(rule(4)),
		handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: hostEnd}, PeerName: "peer"}),
		handle.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: link.TunnelDevice}, PeerName: "pbwaaaaaaaaaaaa"}),
		ns.Do(func() error { return exec.Command("nft", "add table inet porin; add table inet porin2").Run() }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := clean(ns, cfg); err == nil || !strings.Contains(err.Error(), "1 pods use Porin ("+hostEnd+")") {
		t.Errorf("without --force: %v", err)
	}
	cfg.Force = true
	out, err := clean(ns, cfg)
	if err != nil {
		t.Fatal(err)
	}
	var removed []string
	for line := range strings.Lines(out) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "removed "); ok {
			removed = append(removed, text)
		}
	}
	want := []string{"link " + hostEnd, "route 192.0.2.0/24 of table 254", "route 2001:db8::/64 of table 300", "rule 80 to table 300", "table inet porin"}
	if !slices.Equal(removed, want) {
		t.Errorf("removed %q, want %q", removed, want)
	}
	names := ns.LinkNames(t)
	slices.Sort(names)
	if want := []string{"lo", "pbwaaaaaaaaaaaa", link.TunnelDevice}; !slices.Equal(names, want) {
		t.Errorf("links %q, want %q", names, want)
	}
	if !strings.Contains(out, "left link "+link.TunnelDevice) {
		t.Errorf("it does not say why %s stays:\n%s", link.TunnelDevice, out)
	}
}
