package datapath_test

import (
	"net/netip"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/testutil"
)

// orphan is a way to leave something without an owner. It returns the subject that it is found by.
type orphan struct {
	name, kind string
	do         func(t *testing.T, c *checkedNode, p *pod) (subject string)
}

var unknownAddr = netip.MustParseAddr("10.0.0.99")

var orphans = []orphan{
	{"a link", "link-orphan", func(t *testing.T, c *checkedNode, p *pod) string {
		return (&pod{endpoint: newEndpoint(t, &realKernel{node: c.node}, 9)}).fill("link NAME, index LINK")
	}},
	{"a route", "route-orphan", func(t *testing.T, c *checkedNode, p *pod) string {
		must(t, c.Netlink(t).RouteAdd(testutil.HostRoute(p.index(), unknownAddr, testutil.RouteProtocol)))
		return p.fill("route to 10.0.0.99/32 by link LINK")
	}},
	{"a neighbour", "neighbour-orphan", func(t *testing.T, c *checkedNode, p *pod) string {
		must(t, c.Netlink(t).NeighSet(testutil.PermanentNeighbour(p.index(), unknownAddr, testutil.MAC(2))))
		return p.fill("neighbour 10.0.0.99 on link LINK")
	}},
	{"an entry by link", "map-entry-orphan", func(t *testing.T, c *checkedNode, p *pod) string {
		must(t, c.pinned(t, bpf.Links).Put(uint32(4711), abi.Link{Id: 99}))
		return "map entry links 4711"
	}},
	{"an entry by address", "map-entry-orphan", func(t *testing.T, c *checkedNode, p *pod) string {
		must(t, c.pinned(t, bpf.Endpoints).Put(abi.AddrOf(unknownAddr), abi.Endpoint{Ifindex: uint32(p.index()), Id: p.endpoint.ID}))
		return "map entry endpoints 10.0.0.99"
	}},
	{"counters", "map-entry-orphan", func(t *testing.T, c *checkedNode, p *pod) string {
		must(t, c.pinned(t, bpf.Drops).Put(uint32(99), make([]abi.Drops, ebpf.MustPossibleCPU())))
		return "map entry drops 99"
	}},
	{"forwarding is off", "forwarding-off", func(t *testing.T, c *checkedNode, p *pod) string {
		must(t, c.Do(func() error { return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("0"), 0) }))
		return "net.ipv4.ip_forward"
	}},
}

func TestExamineOrphans(t *testing.T) {
	c, pods := newCheckedNode(t, 1)
	for _, row := range orphans {
		t.Run(row.name, func(t *testing.T) {
			subject := row.do(t, c, pods[0])
			findings := c.examine(t, "")
			if len(findings) != 1 || findings[0].Kind != row.kind || findings[0].Subject != subject {
				t.Fatalf("found %+v, want %s: %s", findings, row.kind, subject)
			}
			if got := c.examine(t, pods[0].endpoint.Spec.Attachment.String()); len(got) > 0 {
				t.Errorf("for the attachment alone: found %q", kindsOf(got))
			}
			repairAll(t, findings)
			c.wantHealthy(t)
			repairAll(t, findings) // again, when there is nothing to do
			if got := c.restore(t, pods[0]); got != nil {
				t.Errorf("the repair broke %q", got)
			}
		})
	}
}

// A repair looks again: a found orphan may have an owner now.
func TestRepairOrphanOwnedMeanwhile(t *testing.T) {
	c, pods := newCheckedNode(t, 1)
	late := c.newPod(t, 2)
	c.attach(t, late)
	findings := c.examine(t, "") // the manager did not tell of it yet
	if got, want := kindsOf(findings), "link-orphan map-entry-orphan map-entry-orphan map-entry-orphan map-entry-orphan"; got != want {
		t.Fatalf("found %q, want %q", got, want)
	}
	late.endpoint.State = endpoint.Regenerating
	c.Set(pods[0].endpoint, late.endpoint)
	repairAll(t, findings)
	if got := c.restore(t, late); got != nil {
		t.Errorf("repairs took from a living endpoint: %q", got)
	}
}

// TestExamineLinkOfComingEndpoint: its ADD is under way, and the table does not have the link yet.
func TestExamineLinkOfComingEndpoint(t *testing.T) {
	c, pods := newCheckedNode(t, 2)
	waits := pods[1].endpoint
	must(t, c.datapath.Maps().Delete(datapath.Entry{Link: waits.Host.Index, ID: waits.ID}))
	c.Set(pods[0].endpoint)
	findings := c.examine(t, "")
	if kindsOf(findings) != "link-orphan" {
		t.Fatalf("found %v", findings)
	}
	coming := waits
	coming.Host, coming.Container, coming.State = endpoint.Interface{}, endpoint.Interface{}, endpoint.Regenerating
	c.Set(pods[0].endpoint, coming)
	c.wantHealthy(t)
	must(t, findings[0].Repair(t.Context()))
	if _, err := c.datapath.Links().Link(waits.Host.Index); err != nil {
		t.Errorf("the link of a coming endpoint is gone: %v", err)
	}
}

func TestExamineOrphanLinkAttachment(t *testing.T) {
	c, _ := newCheckedNode(t, 0)
	ep := newEndpoint(t, &realKernel{node: c.node}, 9)
	must(t, c.Netlink(t).LinkSetAlias(testutil.LinkAt(ep.Host.Index), "container-9:eth0 began=12345"))
	if findings := c.examine(t, ""); len(findings) != 1 || findings[0].Endpoint != "container-9:eth0" {
		t.Errorf("found %+v", findings)
	}
	must(t, c.Netlink(t).LinkSetAlias(testutil.LinkAt(ep.Host.Index), "somebody:else"))
	if findings := c.examine(t, ""); len(findings) != 1 || findings[0].Endpoint != "" {
		t.Errorf("found %+v", findings)
	}
}

func TestExamineForeignObjects(t *testing.T) {
	c, pods := newCheckedNode(t, 1)
	another, _ := newCheckedNode(t, 1) // another agent, with its own programs, in a namespace of its own
	w := &realKernel{node: c.node}
	uplink := w.addOther(t, "eth0")
	w.addOther(t, "portal0")
	w.addOther(t, "porABCDEFGHIJKL")
	link := pods[0].index()
	handle := c.Netlink(t)
	must(t, handle.RouteAdd(testutil.HostRoute(link, unknownAddr, unix.RTPROT_STATIC)))
	must(t, handle.RouteAdd(testutil.HostRoute(uplink, unknownAddr.Next(), testutil.RouteProtocol)))
	must(t, handle.NeighSet(testutil.PermanentNeighbour(uplink, unknownAddr, testutil.MAC(2))))
	must(t, handle.FilterReplace(testutil.Filter(link, netlink.HANDLE_MIN_INGRESS, 7, 9, passAll(t))))
	c.wantHealthy(t)
	another.wantHealthy(t)
}
