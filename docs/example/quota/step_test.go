package quota

import (
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
)

func TestStepConformance(t *testing.T) {
	endpointtest.TestStep(t, func(*testing.T) endpointtest.Subject {
		var step *Step
		restart := func(testing.TB) endpoint.Step {
			step = New(Config{Endpoints: 16})
			return step
		}
		return endpointtest.Subject{
			Step: restart(t), Restart: restart,
			Has: func(_ testing.TB, ep endpoint.Endpoint) bool { return step.counts(ep.Spec.Attachment) },
		}
	})
}
