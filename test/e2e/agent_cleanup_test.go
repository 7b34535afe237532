package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// cleanupRig is a node on which Porin has made all that it can make, beside what others have made.
type cleanupRig struct {
	*rig
	pods   []pod
	before testutil.HostSnapshot // before the first start
	own    []string              // files and folders that are to go
	others []string              // that are to stay
}

// newCleanupRig starts the node as the second one of two: it has routes, and tunnels, to the first one.
func newCleanupRig(t *testing.T, flags ...string) *cleanupRig {
	t.Helper()
	testutil.NeedPrograms(t, "nft", "ip")
	fabric := testutil.NewFabric(t)
	c := newNodes(t, fabric, 1, append([]string{"--routing=vxlan"}, flags...)...)
	c.nodes[0].pod()
	node := fabric.NewNode(t)
	others := node.Netlink(t)
	for _, err := range []error{
		others.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "porous"}, PeerName: "pbwother"}),
		others.RouteAdd(&netlink.Route{LinkIndex: node.Link(t, "eth0").Attrs().Index, Dst: nl.IPNet(netip.MustParsePrefix("203.0.113.0/24")), Table: 80, Protocol: 4}),
		node.Do(func() error { return exec.Command("nft", "add table inet porins; add table ip porin").Run() }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := &cleanupRig{own: []string{node.BPFRoot, filepath.Join(node.PluginDir, "porin-cni"), filepath.Join(node.Dir, "net.d", "05-porin.conflist"), filepath.Join(node.StateDir, "ledger.db"),
		filepath.Join(node.StateDir, "health.netns"), filepath.Join(node.StateDir, "deletions"), node.Socket, node.Socket + ".lock", filepath.Join(node.Dir, "store", "node-key")}}
	r.before = snapshotOf(t, node)
	r.rig = c.api.rigOn(node, append([]string{"--routing=vxlan", "--masquerade=both", withHealth, "--cni-conf-path=" + r.own[2], "--proxy-socket=" + proxySocket(node)}, flags...)...)
	node.InstallPlugin(t, filepath.Join(testutil.Build(t), "porin-cni"))
	r.attach() // which makes all folders
	for _, name := range []string{"state/notes", "store/notes", "net.d/10-other.conflist", "cni-bin/bridge"} {
		r.others = append(r.others, filepath.Join(node.Dir, name))
		if err := os.WriteFile(filepath.Join(node.Dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// attach adds pods that have host ports, limits, and policies with layer 7 rules, and waits until the kernel has all
// that they need.
func (r *cleanupRig) attach() {
	r.Helper()
	ported := withPorts(r, "ported", "tcp 8090", "udp 8090")
	limited := testutil.NewContainer(r)
	limited.Caps = map[string]any{"bandwidth": v1.Bandwidth{IngressRate: 40e9, EgressRate: 40e9}}
	r.pods = []pod{r.add(ported), r.add(limited), r.labelled("a", "a")}
	if _, err := r.api.PutPolicies(r.Context(), []byte(strings.ReplaceAll(ciliumPolicy(publicBothWays), "demo", "shop"))); err != nil {
		r.Fatal(err)
	}
	r.healthEndpoint()
	testutil.Eventually(r, func() error {
		names := r.node.LinkNames(r)
		for _, name := range []string{link.TunnelDevice, link.ProxyDevice} {
			if !slices.Contains(names, name) {
				return fmt.Errorf("there is no link %s among %q", name, names)
			}
		}
		if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "pbw") }) {
			return fmt.Errorf("there is no ifb among %q", names)
		}
		for _, program := range []string{bpf.ToUplink, bpf.FromUplink} {
			if !slices.ContainsFunc(r.inspect().Attachments, func(at datapath.ProgramAtALink) bool { return at.IfName == "eth0" && at.Name == program }) {
				return fmt.Errorf("eth0 has no %s", program)
			}
		}
		if routes := r.routesToPeers(); len(routes) == 0 {
			return errors.New("there is no route to the other node's pods")
		}
		for _, table := range []string{"porin", "porin-hostport", "porin-masquerade", "porin-tunnel", "porin-proxy"} {
			if err := r.node.Do(func() error { return exec.Command("nft", "list", "table", "inet", table).Run() }); err != nil {
				return fmt.Errorf("table %s: %w", table, err)
			}
		}
		return nil
	})
}

// snapshotOf leaves out what the kernel changes by itself, and what cleanup leaves.
func snapshotOf(t *testing.T, node *testutil.Node) (s testutil.HostSnapshot) {
	t.Helper()
	err := node.Do(func() (err error) { s, err = testutil.TakeHostSnapshot(); return err })
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(s, func(line string) bool {
		return strings.HasPrefix(line, "address fe80") || strings.HasPrefix(line, "qdisc clsact") || strings.HasPrefix(line, "/proc/sys/net/netfilter") ||
			slices.ContainsFunc([]string{"/ip_forward ", "/forwarding ", "/accept_ra ", "/accept_redirects ", "_tables_names"}, func(part string) bool { return strings.Contains(line, part) })
	})
}

// cleanup runs the command to its end.
func (r *cleanupRig) cleanup(flags ...string) (out string, code int) {
	r.Helper()
	cmd := r.agent.Command(append([]string{"cleanup"}, flags...)...)
	var text strings.Builder
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := r.node.Do(cmd.Start); err != nil {
		r.Fatal(err)
	}
	_ = cmd.Wait()
	return text.String(), cmd.ProcessState.ExitCode()
}

// refused checks that cleanup says why, and changes nothing.
func (r *cleanupRig) refused(want string, flags ...string) {
	r.Helper()
	before := kernelState(r, r.node)
	out, code := r.cleanup(flags...)
	if code != 1 || !strings.Contains(out, want) || strings.Count(out, "\n") != 1 {
		r.Errorf("exit code %d, want one line with %q:\n%s", code, want, out)
	}
	if after := kernelState(r, r.node); after != before {
		r.Errorf("the kernel was\n%s\nand is\n%s", before, after)
	}
	for _, path := range r.own[:5] {
		if _, err := os.Lstat(path); err != nil {
			r.Error(err)
		}
	}
}

// clean checks that all of Porin is gone, and nothing else.
func (r *cleanupRig) clean() {
	r.Helper()
	if diff := r.before.Diff(snapshotOf(r.T, r.node)); diff != "" {
		r.Errorf("the node is not as before Porin's first start:\n%s", diff)
	}
	for _, path := range r.own {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			r.Errorf("%s is left", path)
		}
	}
	for _, path := range r.others {
		if _, err := os.Lstat(path); err != nil {
			r.Error(err)
		}
	}
	for _, dir := range []string{r.node.StateDir, filepath.Join(r.node.Dir, "store")} {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			r.Errorf("%s has %v, want the file of another program alone (%v)", dir, entries, err)
		}
	}
}

// TestCleanup refuses while an agent or pods are there, and then removes all that Porin has made, and nothing else.
func TestCleanup(t *testing.T) {
	for _, mode := range testutil.Sample(ipamModes...) {
		t.Run(mode.name, func(t *testing.T) { testCleanup(t, newCleanupRig(t, mode.flags...)) })
	}
}

func testCleanup(t *testing.T, r *cleanupRig) {
	r.refused("another agent serves it", "--force")
	r.agent.Stop(t)
	r.refused("3 pods use Porin (")
	r.refused("shop/a")
	for _, p := range r.pods {
		r.cni.MustDel(t, p.Container)
	}
	out, code := r.cleanup()
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, want := range []string{
		"removed link porin-vxlan\n", "removed link porin-l7\n", "removed program to_uplink of eth0\n", "removed program from_uplink of eth0\n", "removed table inet porin\n", "removed network namespace ",
		"removed file " + r.own[1] + "\n", "left sysctl net.ipv4.ip_forward = 1", "left " + r.others[0] + ": Porin has not made it\n", "left records of the node at the API server: porin cluster node delete " + r.node.Name,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	r.clean()
	if t.Failed() {
		t.Log(out)
	}
	if out, code := r.cleanup(); code != 0 || strings.Contains(out, "removed") {
		t.Errorf("the second time: exit code %d\n%s", code, out)
	}
	r.clean()

	r.agent.Start(t) // Porin can come back
	r.attach()
	r.agent.Kill(t)
	r.own = slices.Delete(r.own, 1, 2)
	if out, code := r.cleanup("--force"); code != 0 {
		t.Errorf("--force: exit code %d\n%s", code, out)
	}
	r.clean()
}

// TestCleanupKilled: the next cleanup completes a killed one.
func TestCleanupKilled(t *testing.T) {
	r := newCleanupRig(t)
	r.agent.Kill(t)
	kills := 0
	for delay := 20 * time.Millisecond; ; delay += 4 * time.Millisecond {
		cmd := r.agent.Command("cleanup", "--force")
		if err := r.node.Do(cmd.Start); err != nil {
			t.Fatal(err)
		}
		timer := time.AfterFunc(delay, func() { _ = cmd.Process.Kill() })
		err := cmd.Wait()
		timer.Stop()
		if err == nil {
			break
		}
		if cmd.ProcessState.Exited() {
			t.Fatalf("after %d kills it ended with %v", kills, err)
		}
		kills++
	}
	t.Logf("%d kills", kills)
	if kills == 0 {
		t.Error("it was never killed")
	}
	r.clean()
}

// TestCleanupLeftovers: an agent was killed while it replaced the CNI configuration, and an administrator deleted the
// proxy's device.
func TestCleanupLeftovers(t *testing.T) {
	r := newCleanupRig(t)
	r.agent.Kill(t)
	unfinished := filepath.Join(r.node.Dir, "net.d", "05-porin.conflist.new")
	if err := os.WriteFile(unfinished, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.own = append(r.own, unfinished)
	if err := r.node.Do(func() error { return exec.Command("ip", "link", "del", link.ProxyDevice).Run() }); err != nil {
		t.Fatal(err)
	}
	out, code := r.cleanup("--force")
	if want := "left sysctl net.ipv4.tcp_early_demux: "; code != 0 || !strings.Contains(out, want) {
		t.Errorf("exit code %d, want a line %q:\n%s", code, want, out)
	}
	if err := r.node.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/tcp_early_demux", []byte("1"), 0) }); err != nil { // as clean expects it
		t.Error(err)
	}
	r.clean()
}

// TestCleanupContainer has the rights of the chart's porin-cleanup, and the folders as volumes. The node's mounts go,
// too.
func TestCleanupContainer(t *testing.T) {
	r := newCleanupRig(t)
	r.agent.Kill(t)
	r.agent.Wrap = func(cmd *exec.Cmd) {
		inContainer("net_admin", "sys_admin")(cmd)
		dir := r.node.StateDir // with propagation None, only the node has the mount below it
		cmd.Args[2] = "umount " + dir + "/health.netns && mount --bind " + dir + " " + dir + " && " + cmd.Args[2]
	}
	if err := os.Remove(r.others[0]); err != nil {
		t.Fatal(err)
	}
	out, code := r.cleanup("--force")
	if code != 0 || !strings.Contains(out, "left folder "+r.node.StateDir+": it is a volume of this container\n") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if err := os.WriteFile(r.others[0], nil, 0o600); err != nil { // as clean expects it
		t.Error(err)
	}
	r.clean()
}

// TestCleanupWait waits for the pods to go, and then until SIGTERM.
func TestCleanupWait(t *testing.T) {
	t.Parallel()
	const health = "127.0.0.1:9965"
	r := newCleanupRig(t, "--health-address="+health)
	r.agent.Stop(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := r.agent.Command("cleanup", "--wait")
	cmd.Stdout, cmd.Stderr = file, file
	if err := r.node.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	log := func() string { text, _ := os.ReadFile(file.Name()); return string(text) }
	testutil.Eventually(t, func() error {
		if want := "porin-agent: trying again: 3 pods use Porin ("; !strings.HasPrefix(log(), want) {
			return fmt.Errorf("it says %q, want %q", log(), want)
		}
		return nil
	})
	for _, p := range r.pods {
		r.cni.MustDel(t, p.Container)
	}
	client := webClient(t, r.node.Namespace, false)
	testutil.Eventually(t, func() error {
		response, err := client.Get("http://" + health + "/readyz")
		if err != nil {
			return err
		}
		return response.Body.Close()
	})
	_ = cmd.Process.Signal(unix.SIGTERM)
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v, want exit code 0:\n%s", err, log())
	}
	r.clean()
}

// TestCleanupProxyRuns refuses while porin-proxy runs.
func TestCleanupProxyRuns(t *testing.T) {
	t.Parallel()
	testutil.Root(t)
	node := testutil.NewNode(t)
	p := startProxy(t, node)
	r := &cleanupRig{rig: rigOn(t, node, externalProxy(node)...)}
	r.connected(p)
	r.agent.Stop(t)
	if out, code := r.cleanup(); code != 1 || !strings.Contains(out, "porin-proxy may not run") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	p.signal(unix.SIGTERM)
	p.ended()
	if out, code := r.cleanup(); code != 0 {
		t.Errorf("exit code %d\n%s", code, out)
	}
	for _, path := range []string{proxySocket(node), proxySocket(node) + ".lock", node.StateDir, node.BPFRoot} {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left", path)
		}
	}
}

// TestCleanupOtherNamespace refuses in another network namespace than the agent's.
func TestCleanupOtherNamespace(t *testing.T) {
	t.Parallel()
	r := &cleanupRig{rig: newRig(t)}
	r.agent.Stop(t)
	cmd := r.agent.Command("cleanup", "--force")
	var text strings.Builder
	cmd.Stderr = &text
	if err := testutil.NetNS(t).Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || !strings.Contains(text.String(), "network namespace") {
		t.Errorf("%v: %s", err, text.String())
	}
	if _, err := os.Lstat(filepath.Join(r.node.StateDir, "ledger.db")); err != nil {
		t.Error(err)
	}
}
