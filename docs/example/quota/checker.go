package quota

import (
	"context"
	"errors"
	"fmt"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
)

// findingDiffers is the name of the finding, which programs know.
const findingDiffers = "quota-differs"

// checker compares what is counted with the endpoints that there are.
type checker struct {
	step      *Step
	endpoints endpointmanager.Lookup
	manager   endpointmanager.Manager
}

func newChecker(s *Step, endpoints endpointmanager.Lookup, m endpointmanager.Manager) checker {
	return checker{s, endpoints, m}
}

// Owner implements doctor.Checker.
func (checker) Owner() string { return "quota" }

// Kinds implements doctor.Checker.
func (checker) Kinds() []doctor.Kind {
	return []doctor.Kind{{Name: findingDiffers, Meaning: "an endpoint is not counted for its namespace", Repair: "it is counted"}}
}

// Examine implements doctor.Checker. An endpoint that is not ready is being made or taken down.
func (c checker) Examine(_ context.Context, only string) (findings []doctor.Finding, err error) {
	for _, ep := range c.endpoints.List() {
		attachment := ep.Spec.Attachment
		if ep.State != endpoint.Ready || c.step.counts(attachment) || only != "" && only != attachment.String() {
			continue
		}
		findings = append(findings, doctor.Finding{
			Kind: findingDiffers, Subject: attachment.String(), Endpoint: attachment.String(),
			Detail: fmt.Sprintf("endpoint %d is not counted for namespace %s", ep.ID, ep.Spec.Pod.Namespace),
			Repair: func(ctx context.Context) error { return c.repair(ctx, attachment) },
		})
	}
	return findings, nil
}

// repair restores the endpoint in its turn: a deletion may be under way.
func (c checker) repair(ctx context.Context, a endpoint.Attachment) error {
	err := c.manager.Repair(ctx, a)
	if errors.Is(err, endpointmanager.ErrNotReady) || errors.Is(err, endpointmanager.ErrNotFound) {
		return nil
	}
	return err
}
