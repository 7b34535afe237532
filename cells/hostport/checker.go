package hostport

import (
	"context"
	"fmt"
	"strings"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
)

// The kinds of findings.
const (
	tableDiffers = "host-port-table-differs"
	loopbackOff  = "host-port-loopback-off"
)

// checker compares the ports with what the kernel has: the cell's doctor.Checker.
type checker struct{ step *Step }

func newChecker(s *Step) checker { return checker{s} }

// Owner implements doctor.Checker.
func (checker) Owner() string { return "hostport" }

// Kinds implements doctor.Checker.
func (checker) Kinds() []doctor.Kind {
	return []doctor.Kind{
		{Name: tableDiffers, Meaning: "the table inet porin-hostport of nftables is not as it should be: ports of the node do not lead to their pods", Repair: "the table is written again"},
		{Name: loopbackOff, Meaning: "route_localnet of a host end is off: processes of the node do not reach the pod's host ports by 127.0.0.1", Repair: "it is set to 1"},
	}
}

// Examine implements doctor.Checker. Of one attachment it looks whether the table has its ports.
func (c checker) Examine(_ context.Context, only string) (findings []doctor.Finding, err error) {
	differences, off, err := c.step.compare(only)
	if err != nil {
		return nil, err
	}
	for _, ep := range off {
		findings = append(findings, doctor.Finding{
			Kind: loopbackOff, Subject: fmt.Sprintf("link %s, index %d", ep.Host.Name, ep.Host.Index), Endpoint: ep.Spec.Attachment.String(),
			Detail: "route_localnet is 0, want 1", Repair: func(context.Context) error { return c.step.repairLoopback(ep) },
		})
	}
	if len(differences) > 0 {
		findings = append(findings, doctor.Finding{
			Kind: tableDiffers, Subject: "table inet " + table.Name, Endpoint: only, Detail: strings.Join(differences, "; "),
			Repair: func(context.Context) error { return c.step.repair() },
		})
	}
	return findings, nil
}

// repairLoopback does nothing when the endpoint has no ports any more.
func (s *Step) repairLoopback(ep endpoint.Endpoint) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.namespace == nil {
		return ErrNotStarted
	}
	if known, ok := s.claims.byAttachment[ep.Spec.Attachment]; !ok || known.ep.Host != ep.Host {
		return nil
	}
	return allowLoopback(s.namespace, ep)
}
