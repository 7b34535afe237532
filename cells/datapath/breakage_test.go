package datapath_test

import (
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// breakage is a way to break the node's part of an endpoint, and what is seen of it.
type breakage struct {
	name   string
	do     func(t *testing.T, n *node, p *pod)
	kinds  string // of the doctor's findings
	report string // the parts that Restore reports as restored; LINK, ADDR4, ADDR6 and ID stand for the endpoint's
}

var breakages = []breakage{
	{"no filter", func(t *testing.T, n *node, p *pod) {
		must(t, n.Netlink(t).QdiscDel(testutil.Clsact(p.index())))
	}, "program-missing program-missing", "program from_pod: missing; program to_pod: missing"},
	{"another program", func(t *testing.T, n *node, p *pod) {
		must(t, n.Netlink(t).FilterReplace(testutil.Filter(p.index(), netlink.HANDLE_MIN_EGRESS, 1, 1, passAll(t))))
	}, "program-differs", "program to_pod: * instead of *"},
	{"no route", func(t *testing.T, n *node, p *pod) {
		must(t, n.Netlink(t).RouteDel(testutil.HostRoute(p.index(), p.endpoint.Addresses.IPv6, 0)))
	}, "route-missing", "route to ADDR6: missing"},
	{"a route by another link", func(t *testing.T, n *node, p *pod) {
		must(t, n.Netlink(t).RouteReplace(testutil.HostRoute(1, p.endpoint.Addresses.IPv4, unix.RTPROT_STATIC)))
	}, "route-differs", "route to ADDR4: by link 1 with protocol 4 instead of link LINK with protocol 80"},
	{"no neighbour", func(t *testing.T, n *node, p *pod) {
		must(t, n.Netlink(t).NeighDel(testutil.PermanentNeighbour(p.index(), p.endpoint.Addresses.IPv4, nil)))
	}, "neighbour-missing", "neighbour ADDR4: missing"},
	{"a neighbour with another MAC", func(t *testing.T, n *node, p *pod) {
		must(t, n.Netlink(t).NeighSet(testutil.PermanentNeighbour(p.index(), p.endpoint.Addresses.IPv6, testutil.MAC(2, 0, 0, 0, 9, 9))))
	}, "neighbour-missing", "neighbour ADDR6: 02:00:00:00:09:09 instead of *"},
	{"no entry by link", func(t *testing.T, n *node, p *pod) {
		must(t, n.pinned(t, bpf.Links).Delete(uint32(p.index())))
	}, "map-entry-missing", "map entry links LINK: missing"},
	{"another entry by link", func(t *testing.T, n *node, p *pod) {
		must(t, n.pinned(t, bpf.Links).Put(uint32(p.index()), abi.Link{Id: 99}))
	}, "map-entry-differs", "map entry links LINK: endpoint 99 with [], MAC * instead of endpoint ID with [ADDR4 ADDR6], MAC *"},
	{"no entry by address", func(t *testing.T, n *node, p *pod) {
		must(t, n.pinned(t, bpf.Endpoints).Delete(abi.AddrOf(p.endpoint.Addresses.IPv4)))
	}, "map-entry-missing", "map entry endpoints ADDR4: missing"},
	{"another entry by address", func(t *testing.T, n *node, p *pod) {
		must(t, n.pinned(t, bpf.Endpoints).Put(abi.AddrOf(p.endpoint.Addresses.IPv6), abi.Endpoint{Ifindex: uint32(p.index()), Id: 99}))
	}, "map-entry-differs", "map entry endpoints ADDR6: endpoint 99 on link LINK, * instead of endpoint ID on link LINK, *"},
	{"an entry by address of a link that is not there", func(t *testing.T, n *node, p *pod) {
		must(t, n.pinned(t, bpf.Endpoints).Put(abi.AddrOf(p.endpoint.Addresses.IPv4), abi.Endpoint{Ifindex: 4711, Id: 99}))
	}, "map-entry-differs", "map entry endpoints ADDR4: endpoint 99 on link 4711, * instead of endpoint ID on link LINK, *"},
	{"no counters", func(t *testing.T, n *node, p *pod) {
		must(t, n.pinned(t, bpf.Drops).Delete(uint32(p.endpoint.ID)))
	}, "map-entry-missing", "map entry drops ID: missing"},
	{"the link is down", func(t *testing.T, n *node, p *pod) {
		must(t, n.Netlink(t).LinkSetDown(testutil.LinkAt(p.index())))
	}, "link-down neighbour-missing neighbour-missing route-missing route-missing",
		"link NAME: down; route to ADDR4: missing; route to ADDR6: missing; neighbour ADDR4: missing; neighbour ADDR6: missing"},
	{"another MAC, and no filter", func(t *testing.T, n *node, p *pod) {
		must(t, n.Netlink(t).LinkSetHardwareAddr(testutil.LinkAt(p.index()), testutil.MAC(2, 0, 0, 0, 9, 9)))
		must(t, n.Netlink(t).QdiscDel(testutil.Clsact(p.index())))
	}, "link-mac-differs neighbour-missing neighbour-missing program-missing program-missing",
		"link *: MAC * instead of *; program from_pod: missing; program to_pod: missing; neighbour ADDR4: missing; neighbour ADDR6: missing"},
}

func (p *pod) index() int { return p.endpoint.Host.Index }

func hostPrefix(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

// pinned opens a map as another program may.
func (n *node) pinned(t *testing.T, name string) *ebpf.Map {
	t.Helper()
	m, err := ebpf.LoadPinnedMap(filepath.Join(n.cfg.BPFRoot, "maps", name), nil)
	must(t, err)
	t.Cleanup(func() { m.Close() })
	return m
}

// passAll loads a program that is not ours and lets everything pass.
func passAll(t *testing.T) (fd int) {
	t.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	must(t, err)
	t.Cleanup(func() { program.Close() })
	return program.FD()
}

// fill puts the endpoint's own into a text.
func (p *pod) fill(text string) string {
	return strings.NewReplacer(
		"LINK", strconv.Itoa(p.index()), "NAME", p.endpoint.Host.Name, "ID", strconv.Itoa(int(p.endpoint.ID)),
		"ADDR4", p.endpoint.Addresses.IPv4.String(), "ADDR6", p.endpoint.Addresses.IPv6.String(),
	).Replace(text)
}

// fits compares a text with a pattern of the table.
func (b breakage) fits(p *pod, text string) bool {
	pattern := p.fill(b.report)
	for i, part := range strings.Split(pattern, "*") {
		at := strings.Index(text, part)
		if at < 0 || i == 0 && at != 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return text == "" || strings.HasSuffix(pattern, "*")
}
