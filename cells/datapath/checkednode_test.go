package datapath_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
)

// checkedNode is a node with a doctor, and with a manager in memory whose endpoints a test sets.
type checkedNode struct {
	*node
	*endpointmanagertest.Manager
	checker *datapath.Checker

	beforeDelete func() // nil, or what happens before a repair's deletion
}

// newCheckedNode has pods of the numbers 1 to n, attached and ready.
func newCheckedNode(t *testing.T, pods int) (*checkedNode, []*pod) {
	t.Helper()
	return newCheckedNodeOn(t, newNode(t), pods)
}

func newCheckedNodeOn(t *testing.T, n *node, pods int) (*checkedNode, []*pod) {
	t.Helper()
	c := &checkedNode{node: n}
	c.Manager = endpointmanagertest.NewManager(endpoint.Steps{c.links, c.step})
	c.checker = datapath.NewChecker(c.datapath, c, c, c.links)
	var all []*pod
	var endpoints []endpoint.Endpoint
	for i := range pods {
		p := c.newPod(t, i+1)
		p.endpoint.State = endpoint.Ready
		c.attach(t, p)
		endpoints, all = append(endpoints, p.endpoint), append(all, p)
	}
	c.Set(endpoints...)
	return c, all
}

// Delete is the manager's, after what a test wants to happen before.
func (c *checkedNode) Delete(ctx context.Context, a endpoint.Attachment, cfg endpoint.DeleteConfig) endpointmanager.DeleteResult {
	if c.beforeDelete != nil {
		c.beforeDelete()
	}
	return c.Manager.Delete(ctx, a, cfg)
}

func (c *checkedNode) examine(t testing.TB, only string) []doctor.Finding {
	t.Helper()
	findings, err := c.checker.Examine(context.Background(), only)
	must(t, err)
	slices.SortFunc(findings, func(a, b doctor.Finding) int { return strings.Compare(a.Kind+a.Subject, b.Kind+b.Subject) })
	return findings
}

// wantHealthy wants no finding.
func (c *checkedNode) wantHealthy(t testing.TB) {
	t.Helper()
	for _, f := range c.examine(t, "") {
		t.Errorf("found %s: %s: %s", f.Kind, f.Subject, f.Detail)
	}
}

// repairAll runs every repair that there is.
func repairAll(t testing.TB, findings []doctor.Finding) {
	t.Helper()
	for _, f := range findings {
		if f.Repair == nil {
			t.Errorf("%s: %s has no repair", f.Kind, f.Subject)
			continue
		}
		if err := f.Repair(context.Background()); err != nil {
			t.Errorf("repair %s: %s: %v", f.Kind, f.Subject, err)
		}
	}
}

func kindsOf(findings []doctor.Finding) string {
	var kinds []string
	for _, f := range findings {
		kinds = append(kinds, f.Kind)
	}
	return strings.Join(kinds, " ")
}

func textOf(f doctor.Finding) string { return fmt.Sprintf("%s: %s", f.Kind, f.Subject) }
