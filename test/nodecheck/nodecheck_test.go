package nodecheck_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/node"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.Binaries(), testutil.NoLeaks()) }

// rig is a node with one pod.
type rig struct {
	*testing.T
	node  *testutil.Node
	pod   nodecheck.Pod
	check *nodecheck.Checker
}

func newRig(t *testing.T) *rig {
	t.Helper()
	testutil.Root(t)
	return rigOn(t, testutil.NewLAN(t).NewNode(t))
}

func rigOn(t *testing.T, node *testutil.Node, flags ...string) *rig {
	t.Helper()
	r := &rig{T: t, node: node}
	r.node.StartAgent(t, testutil.Build(t), append([]string{"--doctor-repair=false", "--ipam-pod-cidr=10.9.0.0/24"}, flags...)...)
	c := testutil.NewContainer(t)
	result := r.node.NewCNI(t, testutil.CNIConfig{Bin: testutil.Build(t)}).MustAdd(t, c)
	var err error
	if r.pod, err = nodecheck.PodOf(c, result); err != nil {
		t.Fatal(err)
	}
	r.check = nodecheck.New(t, r.node)
	return r
}

// finds checks that the differences are as expected, and no others except the doctor's, which may see more than we
// planted.
func (r *rig) finds(want nodecheck.Want, kinds ...string) {
	r.Helper()
	findings, err := r.check.Look(want)
	if err != nil {
		r.Fatal(err)
	}
	var found []string
	for _, f := range findings {
		if kind := f.Kind + " " + f.Problem; kind[:min(len(kind), 8)] != "doctor's" && !slices.Contains(found, kind) {
			found = append(found, kind)
		}
	}
	slices.Sort(found)
	if !slices.Equal(found, kinds) {
		r.Errorf("found %q, want %q; all: %v", found, kinds, findings)
	}
}

// host is the index of the pod's host end.
func (r *rig) host() int {
	r.Helper()
	return r.node.HostLink(r, r.pod.Container).Attrs().Index
}

// must fails the test for what a break needs.
func (r *rig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func TestNodeCheckPasses(t *testing.T) {
	r := newRig(t)
	r.finds(nodecheck.Want{Live: []nodecheck.Pod{r.pod}})
	r.finds(nodecheck.Want{Maybe: []string{r.pod.Attachment()}})
	r.finds(nodecheck.Want{}, "endpoint left")
	other := r.pod
	other.IPv4 = netip.MustParseAddr("10.9.0.99")
	r.finds(nodecheck.Want{Live: []nodecheck.Pod{other}}, "endpoint left", "endpoint missing")
}

func TestNodeCheckFindings(t *testing.T) {
	stranger := netip.MustParseAddr("10.9.0.77")
	for name, broken := range map[string]struct {
		how   func(r *rig) error
		kinds []string
	}{
		"a link of nobody": {func(r *rig) error {
			_, err := r.node.AddVeth(testutil.Veth{Name: "porabcdefghijkl", MAC: testutil.MAC(2, 1), Peer: r.pod.Namespace, PeerName: "eth9"})
			return err
		}, []string{"link left"}},
		"a link that is down": {outlast(func(r *rig) error { return r.node.Netlink(r).LinkSetDown(testutil.LinkAt(r.host())) }),
			[]string{"link left", "link missing", "neighbour missing", "route missing"}}, // which the kernel takes
		"a route to nobody": {func(r *rig) error {
			return r.node.Netlink(r).RouteAdd(testutil.HostRoute(r.host(), stranger, testutil.RouteProtocol))
		}, []string{"route left"}},
		"no route": {outlast(func(r *rig) error {
			return r.node.Netlink(r).RouteDel(testutil.HostRoute(r.host(), r.pod.IPv4, 0))
		}), []string{"route missing"}},
		"a neighbour that is nobody": {func(r *rig) error {
			return r.node.Netlink(r).NeighSet(testutil.PermanentNeighbour(r.host(), stranger, testutil.MAC(2, 9)))
		}, []string{"neighbour left"}},
		"no filters": {outlast(func(r *rig) error { return r.node.Netlink(r).QdiscDel(testutil.Clsact(r.host())) }), []string{"filter missing"}},
		"an entry for nobody": {func(r *rig) error {
			return r.put(bpf.Endpoints, abi.AddrOf(stranger), abi.Endpoint{Ifindex: 99})
		}, []string{"entry of map endpoints left"}},
		"the class of an address of nobody": {func(r *rig) error {
			key := func(copyNumber uint32) abi.AddressKey {
				return abi.AddressKey{Addr: abi.AddrOf(stranger), Copy: copyNumber}
			}
			return errors.Join(r.put(bpf.Addresses, key(0), uint32(abi.ClassWorld)), r.put(bpf.Addresses, key(1), uint32(abi.ClassWorld)))
		}, []string{"entry of map addresses left"}},
		"a range of addresses of no other node": {func(r *rig) error {
			return r.putUnmanaged(foreign)
		}, []string{"entry of map prefixes left"}},
		"a route to no other node": {func(r *rig) error {
			route := testutil.GatewayRoute(r.node.Link(r, "eth0").Attrs().Index, foreign, netip.MustParseAddr("192.0.2.7"))
			route.Protocol = node.RouteProtocol
			return r.node.Netlink(r).RouteAdd(route)
		}, []string{"route to another node left"}},
		"a policy of nobody": {func(r *rig) error {
			return r.put(bpf.Policies, uint32(77), abi.Policy{Ingress: [2]uint32{9, 9}})
		}, []string{"entry of map policies left"}},
		"a file of a writer that died": {func(r *rig) error {
			dir := filepath.Join(r.node.StateDir, "deletions")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(dir, "1.tmp"), nil, 0o600)
		}, []string{"file left"}},
		"a program that is pinned no more": {func(r *rig) error {
			pins, err := filepath.Glob(filepath.Join(r.node.BPFRoot, "programs", "*", bpf.ToPod))
			if err != nil || len(pins) != 1 {
				return err
			}
			return os.Remove(pins[0])
		}, []string{"pinned program missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.must(broken.how(r))
			r.finds(nodecheck.Want{Live: []nodecheck.Pod{r.pod}}, broken.kinds...)
		})
	}
}

// outlast breaks something until it stays so: the agent repairs it some times, and then waits.
func outlast(how func(r *rig) error) func(r *rig) error {
	return func(r *rig) error {
		whole := func() error {
			findings, err := r.check.Look(nodecheck.Want{Live: []nodecheck.Pod{r.pod}})
			if err == nil && len(findings) > 0 {
				err = fmt.Errorf("found %v", findings)
			}
			return err
		}
		for {
			r.must(how(r))
			if testutil.Poll(3*time.Second, whole) != nil {
				return nil
			}
		}
	}
}

// foreign is a block of no node.
var foreign = netip.MustParsePrefix("10.7.0.0/24")

// putUnmanaged gives a range the class of pods that nothing is known of, in both copies of the policy.
func (r *rig) putUnmanaged(cidr netip.Prefix) (err error) {
	for copyNumber := range abi.PolicyCopies {
		key := abi.PrefixKey{Bits: 32 + 96 + uint32(cidr.Bits()), Copy: copyNumber, Addr: cidr.Addr().As16()}
		err = errors.Join(err, r.put(bpf.Prefixes, key, abi.ClassUnmanaged))
	}
	return err
}

func (r *rig) put(name string, key, value any) error {
	m, err := ebpf.LoadPinnedMap(filepath.Join(r.node.BPFRoot, "maps", name), nil)
	if err != nil {
		return err
	}
	defer m.Close()
	return m.Put(key, value)
}
