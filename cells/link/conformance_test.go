package link_test

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/link"
)

func TestStepConformance(t *testing.T) {
	endpointtest.TestStep(t, func(t *testing.T) endpointtest.Subject {
		n := newNode(t)
		return endpointtest.Subject{
			Step: n.step,
			Has: func(t testing.TB, ep endpoint.Endpoint) bool {
				return slices.Contains(n.LinkNames(t), ep.Spec.Attachment.HostEnd())
			},
			Prepare: func(t testing.TB, ep endpoint.Endpoint) (endpoint.Endpoint, *endpoint.Namespace) {
				ep.Addresses.IPv4 = netip.AddrFrom4([4]byte{10, 0, 0, byte(ep.ID)})
				ep.Addresses.IPv6 = netip.AddrFrom16([16]byte{0xfd, 15: byte(ep.ID)})
				return ep, newContainer(t).netns
			},
			Restart: func(t testing.TB) endpoint.Step {
				must(t, n.step.Stop(context.Background()))
				n.step = link.New(nil, slog.New(slog.DiscardHandler))
				must(t, n.Do(func() error { return n.step.Start(context.Background()) }))
				return n.step
			},
		}
	})
}
