package bandwidth_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/bandwidth"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// checkedNode is a node with a doctor, and with a manager in memory.
type checkedNode struct {
	*node
	*endpointmanagertest.Manager
	checker *bandwidth.Checker
}

func newCheckedNode(t *testing.T) *checkedNode {
	t.Helper()
	c := &checkedNode{node: newNode(t)}
	c.Manager = endpointmanagertest.NewManager(endpoint.Steps{c.step})
	c.checker = bandwidth.NewChecker(c.step, c, c)
	return c
}

// add attaches an endpoint with limits in both directions.
func (c *checkedNode) add(t *testing.T) endpoint.Endpoint {
	t.Helper()
	ep := c.linked(t, endpointtest.Endpoint(len(c.List())+1), endpoint.Bandwidth{IngressRate: 1e7, EgressRate: 1e7})
	ep, err := c.step.Attach(t.Context(), ep, nil)
	must(t, err)
	ep.State = endpoint.Ready
	c.Set(append(c.List(), ep)...)
	return ep
}

func (c *checkedNode) examine(t *testing.T) []doctor.Finding {
	t.Helper()
	findings, err := c.checker.Examine(t.Context(), "")
	must(t, err)
	return findings
}

// limitedLink is where another program does its damage.
type limitedLink struct {
	*netlink.Handle
	host, device int
}

// damages are what another program may do. Each is one finding of the kind.
var damages = []struct {
	name, kind string
	do         func(l limitedLink) error
}{
	{"no bucket on the host end", limitMissing, func(l limitedLink) error { return l.QdiscDel(tbf(l.host)) }},
	{"another bucket there", limitDiffers, func(l limitedLink) error { return l.QdiscReplace(tbf(l.host)) }},
	{"no device", limitMissing, func(l limitedLink) error { return l.LinkDel(nl.LinkAt(l.device)) }},
	{"the device is down", limitDiffers, func(l limitedLink) error { return l.LinkSetDown(nl.LinkAt(l.device)) }},
	{"no bucket on the device", limitMissing, func(l limitedLink) error { return l.QdiscDel(tbf(l.device)) }},
	{"no redirect", limitMissing, func(l limitedLink) error { return l.QdiscDel(testutil.Clsact(l.host)) }},
}

const (
	limitMissing = "bandwidth-limit-missing"
	limitDiffers = "bandwidth-limit-differs"
)

// tbf is a slow token bucket.
func tbf(link int) *netlink.Tbf {
	return &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(0x706f, 0), Parent: netlink.HANDLE_ROOT},
		Rate:       1000, Buffer: 1e6, Limit: 1e5,
	}
}

// damage does it to an endpoint of its own.
func (c *checkedNode) damage(t *testing.T, do func(l limitedLink) error) {
	t.Helper()
	ep, h := c.add(t), c.Netlink(t)
	l, err := h.LinkByName(device(ep))
	must(t, err)
	must(t, do(limitedLink{h, ep.Host.Index, l.Attrs().Index}))
}

func TestExamine(t *testing.T) {
	c := newCheckedNode(t)
	for _, d := range damages {
		c.damage(t, d.do)
		findings := c.examine(t)
		if len(findings) != 1 || findings[0].Kind != d.kind {
			t.Fatalf("%s: found %+v, want one %s", d.name, findings, d.kind)
		}
		must(t, findings[0].Repair(t.Context()))
		if left := c.examine(t); len(left) > 0 {
			t.Fatalf("%s: after the repair: %+v", d.name, left)
		}
	}
}

// TestExamineLinkGone: the datapath says that a link is lost.
func TestExamineLinkGone(t *testing.T) {
	c := newCheckedNode(t)
	must(t, c.Netlink(t).LinkDel(nl.LinkAt(c.add(t).Host.Index)))
	if findings := c.examine(t); len(findings) > 0 {
		t.Errorf("found %+v", findings)
	}
}

func TestExamineOrphan(t *testing.T) {
	c := newCheckedNode(t)
	c.add(t)
	must(t, c.Netlink(t).LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: "pbwaaaaaaaaaaaa"}}))
	findings := c.examine(t)
	if len(findings) != 1 || findings[0].Kind != "bandwidth-device-orphan" {
		t.Fatalf("found %+v", findings)
	}
	must(t, findings[0].Repair(t.Context()))
	if left := c.examine(t); len(left) > 0 {
		t.Errorf("after the repair: %+v", left)
	}
}

func TestFollow(t *testing.T) {
	c := newCheckedNode(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- c.checker.Follow(ctx) }()
	defer func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Follow ends with %v", err)
		}
	}()
	healthy := func() error {
		findings, err := c.checker.Examine(context.Background(), "")
		if err == nil && len(findings) > 0 {
			err = fmt.Errorf("found %+v", findings)
		}
		return err
	}
	first := c.add(t) // Follow compares all when it begins to watch
	must(t, c.Netlink(t).QdiscDel(tbf(first.Host.Index)))
	testutil.Eventually(t, healthy)
	for _, d := range damages {
		c.damage(t, d.do)
		if err := testutil.Poll(time.Second, healthy); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
	}
}
