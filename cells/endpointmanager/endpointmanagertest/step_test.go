package endpointmanagertest_test

import (
	"slices"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
)

func TestStep(t *testing.T) {
	for _, name := range []string{"ipam", "datapath"} { // which do more than others
		t.Run(name, func(t *testing.T) {
			endpointtest.TestStep(t, func(*testing.T) endpointtest.Subject {
				step := endpointmanagertest.NewStep(name)
				return endpointtest.Subject{Step: step, Has: func(_ testing.TB, ep endpoint.Endpoint) bool {
					return slices.Contains(step.Attached(), ep.Spec.Attachment.String())
				}}
			})
		})
	}
}
