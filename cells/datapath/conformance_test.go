package datapath_test

import (
	"testing"

	"porin.dev/porin/cells/datapath/datapathtest"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/internal/testutil"
)

func TestStepConformance(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		endpointtest.TestStep(t, func(*testing.T) endpointtest.Subject {
			w := &fakeKernel{kernel: &datapathtest.Kernel{}}
			return endpointtest.Subject{
				Step: w.step(), Has: hasEntry(w), Restart: func(testing.TB) endpoint.Step { return w.step() },
				Prepare: func(t testing.TB, ep endpoint.Endpoint) (endpoint.Endpoint, *endpoint.Namespace) {
					ep = endpointAt(t, int(ep.ID), ep.Spec.Attachment)
					ep.Host.Index = w.addLink(t, ep)
					return ep, nil
				},
			}
		})
	})
	t.Run("kernel", func(t *testing.T) {
		endpointtest.TestStep(t, func(t *testing.T) endpointtest.Subject {
			w := &realKernel{node: newNode(t)}
			return endpointtest.Subject{
				Step: w.step(), Has: hasEntry(w),
				Prepare: func(t testing.TB, ep endpoint.Endpoint) (endpoint.Endpoint, *endpoint.Namespace) {
					ep = endpointAt(t, int(ep.ID), ep.Spec.Attachment)
					netns := endpointmanagertest.OpenNamespace(t, testutil.NetNS(t).Path())
					return w.node.link(t, netns, ep), netns
				},
				Restart: func(t testing.TB) endpoint.Step {
					w.node.stop(t)
					w.node.start(t)
					return w.step()
				},
			}
		})
	})
}

// hasEntry reports whether the programs know the endpoint: its link's filters go with the link.
func hasEntry(w testKernel) func(t testing.TB, ep endpoint.Endpoint) bool {
	return func(t testing.TB, ep endpoint.Endpoint) bool {
		entries, err := w.maps().Entries()
		must(t, err)
		for _, e := range entries {
			if e.ID == ep.ID {
				return true
			}
		}
		return false
	}
}
