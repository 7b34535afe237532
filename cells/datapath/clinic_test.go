package datapath_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
)

// clinic is a node with a doctor, and with endpoints that a manager would have.
type clinic struct {
	*node
	checker *datapath.Checker

	beforeDelete func()                       // nil, or what happens before a repair's deletion
	coming       []endpointmanager.Attachment // creations that have no endpoint yet

	mu        sync.Mutex // guards the field below
	endpoints []endpointmanager.Endpoint
}

// newClinic has pods of the numbers 1 to n, attached and ready.
func newClinic(t *testing.T, pods int) (*clinic, []*pod) {
	t.Helper()
	c := &clinic{node: newNode(t)}
	c.checker = datapath.NewChecker(c.datapath, c, c, c.links)
	var all []*pod
	for i := range pods {
		p := c.newPod(t, i+1)
		p.endpoint.State = endpointmanager.Ready
		c.attach(t, p)
		c.endpoints = append(c.endpoints, p.endpoint)
		all = append(all, p)
	}
	return c, all
}

func (c *clinic) List() []endpointmanager.Endpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.endpoints)
}

func (c *clinic) Get(ref endpointmanager.Ref) (endpointmanager.Endpoint, error) {
	for _, ep := range c.List() {
		if ref == endpointmanager.ByID(ep.ID) || ref == endpointmanager.ByAttachment(ep.Spec.Attachment) {
			return ep, nil
		}
	}
	return endpointmanager.Endpoint{}, endpointmanager.ErrNotFound
}

func (c *clinic) set(endpoints ...endpointmanager.Endpoint) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endpoints = endpoints
}

func (c *clinic) Coming() []endpointmanager.Attachment { return c.coming }

func (c *clinic) Repair(ctx context.Context, a endpointmanager.Attachment) error {
	ep, err := c.Get(endpointmanager.ByAttachment(a))
	if err == nil {
		_, err = c.step.Restore(ctx, ep)
	}
	return err
}

// Delete spares, as a manager does, what began after the deletion, which began now when it does not say.
func (c *clinic) Delete(ctx context.Context, a endpointmanager.Attachment, cfg endpointmanager.DeleteConfig) endpointmanager.DeleteResult {
	if c.beforeDelete != nil {
		c.beforeDelete()
	}
	ep, err := c.Get(endpointmanager.ByAttachment(a))
	if err != nil {
		return endpointmanager.DeleteResult{}
	}
	if cfg.Began > 0 && ep.Spec.Began > cfg.Began {
		return endpointmanager.DeleteResult{Spared: 1}
	}
	if err := errors.Join(c.step.Detach(ctx, ep, cfg), c.links.Detach(ctx, ep, cfg)); err != nil {
		return endpointmanager.DeleteResult{Errors: []error{err}}
	}
	c.set(slices.DeleteFunc(c.List(), func(other endpointmanager.Endpoint) bool { return other == ep })...)
	return endpointmanager.DeleteResult{Deleted: 1}
}

func (c *clinic) examine(t testing.TB, only string) []doctor.Finding {
	t.Helper()
	findings, err := c.checker.Examine(context.Background(), only)
	must(t, err)
	slices.SortFunc(findings, func(a, b doctor.Finding) int { return strings.Compare(a.Kind+a.Subject, b.Kind+b.Subject) })
	return findings
}

// wantHealthy wants no finding.
func (c *clinic) wantHealthy(t testing.TB) {
	t.Helper()
	for _, f := range c.examine(t, "") {
		t.Errorf("found %s: %s: %s", f.Kind, f.Subject, f.Detail)
	}
}

// cure runs every repair that there is.
func cure(t testing.TB, findings []doctor.Finding) {
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
