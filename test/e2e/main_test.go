// Package e2e runs the built binaries: nodes and containers are namespaces, the plugin is called through libcni, the
// packets are real. The machine's own namespace is compared before and after. Names of files begin with the part
// that they test; what tests share is in this file and in helper_*.go.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) {
	testutil.Main(m, testutil.Binaries(), testutil.HostUntouched(), testutil.NoLeaks())
}

// reach bounds how long one packet or connection may take; unreachable is how long a test waits for a packet that must
// not arrive.
const (
	reach       = testutil.Patience
	unreachable = 300 * time.Millisecond
)

// rig is a node with an agent and a runtime.
type rig struct {
	*testing.T
	node  *testutil.Node
	agent *testutil.Agent
	cni   *testutil.CNI
	api   *client.Client
	// server is the node's way to a Kubernetes API that names its pods; nil for a rig whose test does that itself.
	server *apiServer
	empty  string // the node's kernel state without any endpoint
}

func newRig(t *testing.T, flags ...string) *rig {
	t.Helper()
	testutil.Root(t)
	return rigOn(t, testutil.NewNode(t), flags...)
}

func rigOn(t *testing.T, node *testutil.Node, flags ...string) *rig {
	t.Helper()
	return rigOf(t, node, testutil.Build(t), flags...)
}

// rigOf has agent and plugin from a folder.
func rigOf(t *testing.T, node *testutil.Node, bin string, flags ...string) *rig {
	t.Helper()
	r := &rig{T: t, node: node, empty: kernelState(t, node)}
	r.agent = node.StartAgent(t, bin, flags...)
	r.cni = node.NewCNI(t, testutil.CNIConfig{Bin: bin})
	r.api = client.New(node.Socket)
	t.Cleanup(r.api.Close)
	return r
}

// pod is an attached container.
type pod struct {
	*testutil.Container
	ipv4, ipv6 netip.Addr
}

func (r *rig) add(c *testutil.Container) pod {
	r.Helper()
	if r.server != nil {
		r.server.podOf(c)
	}
	return podOf(c, r.cni.MustAdd(r, c))
}

// podOf has the addresses that ADD has answered.
func podOf(c *testutil.Container, result *types100.Result) pod {
	p := pod{Container: c}
	for _, ip := range result.IPs {
		addr, _ := netip.AddrFromSlice(ip.Address.IP)
		if addr = addr.Unmap(); addr.Is4() {
			p.ipv4 = addr
		} else {
			p.ipv6 = addr
		}
	}
	return p
}

func (r *rig) pod() pod {
	r.Helper()
	return r.add(testutil.NewContainer(r))
}

// porin runs the command line.
func (r *rig) porin(args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(testutil.Build(r), "porin"), append([]string{"--socket", r.node.Socket}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *rig) status() v1.Status {
	r.Helper()
	status, err := r.api.Status(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	return status
}

func (r *rig) endpoints() []v1.Endpoint {
	r.Helper()
	all, err := r.api.Endpoints(context.Background(), "")
	if err != nil {
		r.Fatal(err)
	}
	return all
}

func (r *rig) usage() v1.IPAM {
	r.Helper()
	usage, err := r.api.IPAM(context.Background())
	if err != nil {
		r.Fatal(err)
	}
	return usage
}

// nothingLeft checks that agent and kernel are as if there had never been an endpoint.
func (r *rig) nothingLeft() {
	r.Helper()
	if all := r.endpoints(); len(all) > 0 {
		r.Errorf("endpoints are left: %+v", all)
	}
	if usage := r.usage(); len(usage.Allocations) > 0 {
		r.Errorf("addresses are left: %+v", usage.Allocations)
	}
	if diff := cmp.Diff(r.empty, kernelState(r, r.node)); diff != "" {
		r.Errorf("the node's kernel is not as it was (-before +now):\n%s", diff)
	}
	found := r.inspect()
	ordinary := map[string]int{bpf.Endpoints: 0, bpf.Links: 0, bpf.Drops: 1} // maps that no cell owns
	for _, m := range found.Maps {
		if most, ok := ordinary[m.Name]; ok && m.Entries > most {
			r.Errorf("map %s has %d entries left", m.Name, m.Entries-most)
		}
	}
	if len(found.Attachments) > 0 {
		r.Errorf("filters are left: %+v", found.Attachments)
	}
}

// inspect reads the kernel's side without the agent.
func (r *rig) inspect() (found datapath.Inspection) {
	r.Helper()
	err := r.node.Do(func() (err error) {
		found, err = datapath.Inspect(r.node.BPFRoot)
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return found
}

// kernelState is what the node's kernel knows of links, their filters, addresses, routes and neighbours.
func kernelState(t testing.TB, node *testutil.Node) string {
	t.Helper()
	var lines []string
	addf := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	links, err1 := node.Links()
	for _, link := range links {
		l := link.Attrs()
		addf("link %d %s %s mtu %d group %d", l.Index, l.Name, l.HardwareAddr, l.MTU, l.Group)
		for name, side := range map[string]uint32{"ingress": netlink.HANDLE_MIN_INGRESS, "egress": netlink.HANDLE_MIN_EGRESS} {
			filters, err := node.Filters(l.Index, side)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range filters {
				line := fmt.Sprintf("filter dev %d %s %s priority %d handle %d", l.Index, name, f.Type(), f.Attrs().Priority, f.Attrs().Handle)
				if program, ok := f.(*netlink.BpfFilter); ok {
					line += fmt.Sprintf(" program %d", program.Id)
				}
				lines = append(lines, line)
			}
		}
	}
	addrs, err2 := node.Addrs(0)
	for _, a := range addrs {
		if !a.IP.IsLinkLocalUnicast() { // comes when the kernel likes
			addf("address %d %s", a.LinkIndex, a.IPNet)
		}
	}
	routes, err3 := node.Routes(0)
	for _, r := range routes {
		if !r.Dst.IP.IsLinkLocalUnicast() {
			addf("route %s via %s dev %d protocol %d", r.Dst, r.Gw, r.LinkIndex, r.Protocol)
		}
	}
	neighbours, err4 := node.PermanentNeighbours(0)
	for _, n := range neighbours {
		addf("neighbour %s dev %d is %s", n.IP, n.LinkIndex, n.HardwareAddr)
	}
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

func prefixOf(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }
