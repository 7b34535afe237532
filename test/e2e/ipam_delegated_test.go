package e2e

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/types"

	"porin.dev/porin/internal/testutil"
)

// delegatedRig is a rig whose network takes its addresses from a reference IPAM plugin.
type delegatedRig struct {
	*rig
	ipam map[string]any // section of the configuration
	bin  string         // folder of the plugins
}

// delegateTo makes a rig with the plugin of that name, for a section of the caller's.
func delegateTo(t *testing.T, plugin string, flags ...string) *delegatedRig {
	t.Helper()
	r := &delegatedRig{rig: newRig(t, flags...)}
	r.bin = r.node.PluginDir
	r.node.InstallPlugin(t, filepath.Join(testutil.Build(t), "porin-cni"))
	r.node.InstallPlugin(t, testutil.IPAMPlugin(t, plugin))
	return r
}

// newDelegatedRig is one with host-local.
func newDelegatedRig(t *testing.T, flags ...string) *delegatedRig {
	t.Helper()
	r := delegateTo(t, "host-local", flags...)
	r.ipam = map[string]any{
		"type": "host-local", "dataDir": filepath.Join(r.node.Dir, "ipam"), "routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
		"ranges": []any{
			[]any{map[string]any{"subnet": "10.200.1.0/24"}}, []any{map[string]any{"subnet": "fd00:200:1::/64"}},
		},
	}
	r.cni = r.runtime("porin", r.ipam)
	return r
}

// runtime is a runtime that attaches to a network.
func (r *delegatedRig) runtime(network string, ipam map[string]any) *testutil.CNI {
	r.Helper()
	return r.node.NewCNI(r, testutil.CNIConfig{Bin: r.bin, Network: network, Plugin: map[string]any{"ipam": ipam}})
}

// reserved are the addresses that host-local has given, each a file with its owner's name.
func (r *delegatedRig) reserved() (list []string) {
	r.Helper()
	files, err := filepath.Glob(filepath.Join(r.node.Dir, "ipam", "porin", "*"))
	if err != nil {
		r.Fatal(err)
	}
	for _, file := range files {
		if _, err := netip.ParseAddr(filepath.Base(file)); err == nil {
			list = append(list, filepath.Base(file))
		}
	}
	return list
}

// holds checks which addresses are reserved.
func (r *delegatedRig) holds(when string, want ...string) {
	r.Helper()
	slices.Sort(want)
	if got := r.reserved(); !slices.Equal(got, want) {
		r.Errorf("%s: host-local holds %v, want %v", when, got, want)
	}
}

// move moves files that host-local made, between folders of the node.
func (r *delegatedRig) move(names []string, from, to string) {
	r.Helper()
	for _, name := range names {
		if err := os.Rename(filepath.Join(r.node.Dir, from, name), filepath.Join(r.node.Dir, to, name)); err != nil {
			r.Fatal(err)
		}
	}
}

// of are the pods' addresses.
func of(pods ...pod) (list []string) {
	for _, p := range pods {
		list = append(list, p.ipv4.String(), p.ipv6.String())
	}
	return list
}

func (r *delegatedRig) reach(from, to pod) {
	r.Helper()
	for _, addr := range []netip.Addr{to.ipv4, to.ipv6, r.node.IPv4, r.node.IPv6} {
		if err := testutil.Ping(from.Namespace, addr, reach); err != nil {
			r.Error(err)
		}
	}
}

func TestIPAMPlugin(t *testing.T) {
	r := newDelegatedRig(t)
	a, b := r.pod(), r.pod()
	theirs4, theirs6 := netip.MustParsePrefix("10.200.1.0/24"), netip.MustParsePrefix("fd00:200:1::/64")
	for _, p := range []pod{a, b} {
		if !theirs4.Contains(p.ipv4) || !theirs6.Contains(p.ipv6) {
			t.Errorf("addresses %s and %s are not of host-local", p.ipv4, p.ipv6)
		}
	}
	r.reach(a, b)
	r.reach(b, a)
	r.holds("attached", of(a, b)...)
	for _, ep := range r.endpoints() {
		if !ep.ExternalIPAM {
			t.Errorf("the agent takes the addresses for its own: %+v", ep)
		}
	}
	for name, err := range map[string]error{"CHECK": r.cni.Check(a.Container), "STATUS": r.cni.Status(), "GC": r.cni.GC(a.Container, b.Container)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.agrees()

	// A lease that host-local has lost is what CHECK is for.
	r.move(of(a), "ipam/porin", ".")
	failedWith(t, r.cni.Check(a.Container), "host-local: Failed to find address added by container "+a.ID)
	r.move(of(a), ".", "ipam/porin")

	r.cni.MustDel(t, a.Container)
	r.holds("after the first DEL", of(b)...)
	r.cni.MustDel(t, a.Container)
	b.Close() // with its namespace
	r.cni.MustDel(t, b.Container)
	r.holds("after all")
	r.nothingLeft()
}

func TestIPAMPluginADDFails(t *testing.T) {
	t.Parallel()
	r := newDelegatedRig(t)
	keep := r.pod()

	// The agent refuses: another endpoint has the address, which host-local does not know.
	_, err := r.runtime("other", r.ipam).Add(testutil.NewContainer(t))
	failedWith(t, err, "in use")
	if left, _ := filepath.Glob(filepath.Join(r.node.Dir, "ipam", "other", "*.*.*.*")); len(left) > 0 {
		t.Errorf("after a refusal host-local holds %v", left)
	}

	// There is no namespace.
	gone := testutil.NewContainer(t)
	gone.Close()
	_, err = r.cni.Add(gone)
	failedWith(t, err, "it is not a network namespace")
	r.holds("after an ADD without a namespace", of(keep)...)

	// The agent is away: nothing is even asked for.
	r.agent.Kill(t)
	_, err = r.node.NewCNI(r, testutil.CNIConfig{Bin: r.bin, Plugin: map[string]any{"ipam": r.ipam, "timeout": "1s"}}).Add(testutil.NewContainer(t))
	failedAs(t, err, codeTryAgainLater)
	r.holds("after an ADD without an agent", of(keep)...)
	r.agent.Start(t)

	// host-local itself has no more.
	small := r.runtime("small", map[string]any{
		"type": "host-local", "dataDir": filepath.Join(r.node.Dir, "ipam"), "ranges": []any{[]any{map[string]any{"subnet": "10.200.9.0/30"}}},
	})
	one := testutil.NewContainer(t)
	small.MustAdd(t, one) // which leaves none
	_, err = small.Add(testutil.NewContainer(t))
	failedWith(t, err, "no IP addresses available")
	small.MustDel(t, one)
	r.cni.MustDel(t, keep.Container)
	r.holds("after all")
	r.nothingLeft()
}

func TestIPAMPluginRestart(t *testing.T) {
	r := newDelegatedRig(t)
	a, b, c := r.pod(), r.pod(), r.pod()
	r.agent.Kill(t)
	r.reach(a, b)
	r.cni.MustDel(t, c.Container) // without an agent
	r.cni.MustDel(t, c.Container)
	r.holds("after a DEL without an agent", of(a, b, c)...) // which the agent gives back
	r.agent.Start(t)
	r.reach(b, a)
	r.holds("after a restart", of(a, b)...)
	d := r.pod()
	r.reach(d, a)
	r.holds("attached after a restart", of(a, b, d)...)

	for _, p := range []pod{a, b, d} {
		r.cni.MustDel(t, p.Container)
	}
	r.holds("after all")
	r.nothingLeft()
}

// TestIPAMPluginOnly has a network that takes its own from elsewhere, and none for another.
func TestIPAMPluginOnly(t *testing.T) {
	r := newDelegatedRig(t, "--ipam-mode=delegated")
	a, b := r.pod(), r.pod()
	r.reach(a, b)
	if err := r.cni.Status(); err != nil {
		t.Error(err)
	}
	_, err := r.runtime("other", map[string]any{}).Add(testutil.NewContainer(t))
	failedWith(t, err, "addresses come from another IPAM plugin, and none was given")
	r.agrees()
	r.agent.Restart(t)
	r.reach(b, a)
	r.agrees()
	for _, p := range []pod{a, b} {
		r.cni.MustDel(t, p.Container)
	}
	r.holds("after all")
	r.nothingLeft()
}

// TestIPAMPluginConcurrently kills the agent in between: an ADD may fail, and what it had goes back.
func TestIPAMPluginConcurrently(t *testing.T) {
	t.Parallel()
	r := newDelegatedRig(t)
	c := r.churnDelegated(8)
	for range 3 {
		c.grows(20)
		r.ownedOnce()
		r.agent.Kill(t)
		r.agent.Start(t)
	}
	c.grows(20)
	c.end()
	r.holds("after all")
}

// churnDelegated is churn whose every ADD has its DEL, as the specification wants: host-local gives nothing twice.
func (r *delegatedRig) churnDelegated(loops int) *churn {
	c := &churn{rig: r.rig}
	for range loops {
		container := testutil.NewContainer(r)
		c.containers = append(c.containers, container)
		c.running.Go(func() {
			for !c.stop.Load() {
				_, err := c.cni.Add(container)
				switch failure, _ := errors.AsType[*types.Error](err); {
				case err == nil:
					c.added.Add(1)
				case failure == nil || failure.Code != codeTryAgainLater:
					c.Errorf("ADD: %v", err)
				}
				if err := c.cni.Del(container); err != nil {
					c.Errorf("DEL: %v", err)
				}
			}
		})
	}
	return c
}
