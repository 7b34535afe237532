package datapath_test

import (
	"strings"
	"testing"
	"time"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/doctor/doctortest"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/testutil"
)

var _ doctor.Checker = (*datapath.Checker)(nil)

func TestCheckerConformance(t *testing.T) {
	doctortest.TestChecker(t, func(t *testing.T) doctor.Checker {
		c, pods := newCheckedNode(t, 2)
		for i, row := range breakages[:6] {
			row.do(t, c.node, pods[i%2])
		}
		return c.checker
	})
}

func TestExamineBrokenEndpoint(t *testing.T) {
	c, pods := newCheckedNode(t, 2)
	a, b := pods[0], pods[1]
	c.wantHealthy(t)
	for _, row := range breakages {
		t.Run(row.name, func(t *testing.T) {
			row.do(t, c.node, a)
			findings := c.examine(t, "")
			if got := kindsOf(findings); got != row.kinds {
				t.Errorf("found %q, want %q", got, row.kinds)
			}
			for _, f := range findings {
				if f.Endpoint != a.endpoint.Spec.Attachment.String() || f.Detail == "" || !strings.HasPrefix(f.Subject, a.fill("endpoint ID on link LINK: ")) {
					t.Errorf("%+v does not tell what it is about", f)
				}
			}
			if got := kindsOf(c.examine(t, a.endpoint.Spec.Attachment.String())); got != row.kinds {
				t.Errorf("for the attachment alone: found %q, want %q", got, row.kinds)
			}
			if got := c.examine(t, b.endpoint.Spec.Attachment.String()); len(got) > 0 {
				t.Errorf("for another attachment: found %q", kindsOf(got))
			}
			repairAll(t, findings)
			c.wantHealthy(t)
			testutil.Eventually(t, func() error { // a link that was down passes packets a moment after it is up
				return pingWithin(time.Second, a.Namespace, b.endpoint.Addresses.IPv4)
			})
		})
	}
}

func TestKinds(t *testing.T) {
	c, _ := newCheckedNode(t, 0)
	known := map[string]bool{}
	for _, kind := range c.checker.Kinds() {
		if known[kind.Name] || kind.Meaning == "" || kind.Repair == "" {
			t.Errorf("kind %+v", kind)
		}
		known[kind.Name] = true
	}
	for _, row := range breakages {
		for _, kind := range strings.Fields(row.kinds) {
			if !known[kind] {
				t.Errorf("kind %s is not among those of the checker", kind)
			}
		}
	}
}

func TestRepairMissingLink(t *testing.T) {
	c, pods := newCheckedNode(t, 2)
	a := pods[0]
	must(t, c.Netlink(t).LinkDel(testutil.LinkAt(a.index())))
	findings := c.examine(t, "")
	if got := kindsOf(findings); got != "link-missing" {
		t.Fatalf("found %q", got)
	}
	other := a.endpoint
	other.State = endpoint.Disconnecting
	c.Set(other, pods[1].endpoint)
	repairAll(t, findings) // its deletion has begun meanwhile
	if len(c.List()) != 2 {
		t.Error("an endpoint that is on its way was deleted")
	}
	c.Set(a.endpoint, pods[1].endpoint)
	repairAll(t, findings)
	c.wantHealthy(t)
	if len(c.List()) != 1 {
		t.Error("the endpoint is there")
	}
}

func TestRepairMissingLinkSparesNextEndpoint(t *testing.T) {
	for _, began := range []time.Duration{0, 10} { // 0 is in the ledger of an agent that did not ask
		c, pods := newCheckedNode(t, 1)
		gone := pods[0].endpoint
		gone.Spec.Began = began
		c.Set(gone)
		must(t, c.Netlink(t).LinkDel(testutil.LinkAt(pods[0].index())))
		findings := c.examine(t, "")
		next := c.newPod(t, 1).endpoint
		next.Spec.Began, next.State = 20, endpoint.Ready
		c.beforeDelete = func() { c.Set(next) }
		repairAll(t, findings)
		if left := c.List(); len(left) != 1 || left[0] != next {
			t.Errorf("left %+v, want the attachment's next life", left)
		}
	}
}

func TestExamineForeignLink(t *testing.T) {
	rows := []struct {
		name, kind string
		do         func(t *testing.T, c *checkedNode, p *pod)
	}{
		{"the link has another name", "link-differs", func(t *testing.T, c *checkedNode, p *pod) {
			must(t, c.Netlink(t).LinkSetDown(testutil.LinkAt(p.index())))
			must(t, c.Netlink(t).LinkSetName(testutil.LinkAt(p.index()), "renamed"))
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			c, pods := newCheckedNode(t, 1)
			row.do(t, c, pods[0])
			findings := c.examine(t, "")
			if kindsOf(findings) != row.kind || findings[0].Repair != nil {
				t.Errorf("found %+v, want %s without a repair", findings, row.kind)
			}
		})
	}
}

func TestExamineEndpointNotReady(t *testing.T) {
	for _, state := range []endpoint.State{endpoint.Waiting, endpoint.Regenerating, endpoint.Disconnecting} {
		c, pods := newCheckedNode(t, 1)
		pods[0].endpoint.State = state
		c.Set(pods[0].endpoint)
		c.wantHealthy(t) // none of its parts is an orphan
		c.detach(t, pods[0])
		c.wantHealthy(t) // and none is missing
	}
}

// listSequence is a lookup whose endpoints are others at each List, and the last ones from then on.
type listSequence [][]endpoint.Endpoint

func (m *listSequence) List() []endpoint.Endpoint {
	now := (*m)[0]
	if len(*m) > 1 {
		*m = (*m)[1:]
	}
	return now
}

func (m *listSequence) Get(endpoint.Ref) (endpoint.Endpoint, error) {
	return endpoint.Endpoint{}, endpointmanager.ErrNotFound
}

func TestExamineEndpointChanges(t *testing.T) {
	c, pods := newCheckedNode(t, 1)
	ready := pods[0].endpoint
	leaving, none := ready, []endpoint.Endpoint(nil)
	leaving.State = endpoint.Disconnecting
	one := []endpoint.Endpoint{ready}
	breakages[0].do(t, c.node, pods[0])
	rows := []struct {
		name  string
		lists listSequence
		want  string
	}{
		{"it is broken", listSequence{one}, "program-missing program-missing"},
		{"its deletion begins", listSequence{one, {leaving}}, ""},
		{"it comes after the first lists", listSequence{none, none, none, one, one}, ""},
		{"it goes before the last list", listSequence{{leaving}, {leaving}, {leaving}, {leaving}, {leaving}, {leaving}, none}, ""},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			findings, err := datapath.NewChecker(c.datapath, &row.lists, c, c.links).Examine(t.Context(), "")
			if must(t, err); kindsOf(findings) != row.want {
				t.Errorf("found %q, want %q", kindsOf(findings), row.want)
			}
		})
	}
}

func TestExamineBeforeStart(t *testing.T) {
	c, pods := newCheckedNode(t, 1)
	c.stop(t)
	for _, only := range []string{"", pods[0].endpoint.Spec.Attachment.String()} {
		if findings, err := c.checker.Examine(t.Context(), only); err == nil || len(findings) > 0 {
			t.Errorf("found %+v, error %v", findings, err)
		}
	}
	if _, err := c.checker.Examine(t.Context(), "no attachment"); err == nil {
		t.Error("what is no attachment was examined")
	}
}
