package datapath_test

import (
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/endpoint"
)

func TestFindCompletesLinks(t *testing.T) {
	onBothKernels(t, func(t *testing.T, w testKernel) {
		whole, down, unattached := newEndpoint(t, w, 1), newEndpoint(t, w, 2), newEndpoint(t, w, 3)
		attach(t, w, whole, down)
		w.setDown(t, down) // its routes go
		var links []endpoint.Endpoint
		for _, ep := range []endpoint.Endpoint{whole, down, unattached} {
			links = append(links, endpoint.Endpoint{Spec: endpoint.Spec{Attachment: ep.Spec.Attachment}, Host: ep.Host})
		}
		got, err := w.step().Find(t.Context(), links)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []endpoint.Endpoint{whole, down, {Host: unattached.Host}} {
			if got[i].ID != want.ID || got[i].Container.MAC != want.Container.MAC || got[i].Host != want.Host {
				t.Errorf("link %d: %+v, want %+v", i, got[i], want)
			}
			if got[i].Addresses != want.Addresses {
				t.Errorf("link %d has %v, want %v", i, got[i].Addresses.List(), want.Addresses.List())
			}
		}
	})
}

// TestFindReadsRoutes has the maps lose what they know of a link.
func TestFindReadsRoutes(t *testing.T) {
	onBothKernels(t, func(t *testing.T, w testKernel) {
		ep := newEndpoint(t, w, 1)
		attach(t, w, ep)
		if err := w.maps().Delete(datapath.Entry{Link: ep.Host.Index, ID: ep.ID}); err != nil {
			t.Fatal(err)
		}
		got, err := w.step().Find(t.Context(), []endpoint.Endpoint{{Host: ep.Host}})
		if err != nil || got[0].Addresses != ep.Addresses || got[0].ID != 0 {
			t.Errorf("found %+v, error %v, want %v", got, err, ep.Addresses)
		}
	})
}

// TestFindAddsEntriesWithoutLink: the link may be in another network namespace.
func TestFindAddsEntriesWithoutLink(t *testing.T) {
	onBothKernels(t, func(t *testing.T, w testKernel) {
		one, other := newEndpoint(t, w, 1), newEndpoint(t, w, 2)
		attach(t, w, one, other)
		got, err := w.step().Find(t.Context(), []endpoint.Endpoint{{Host: one.Host}})
		if err != nil || len(got) != 2 {
			t.Fatalf("found %+v, error %v, want two", got, err)
		}
		if got[1].ID != other.ID || got[1].Addresses != other.Addresses || got[1].Host != (endpoint.Interface{Index: other.Host.Index}) {
			t.Errorf("found %+v, want what the maps have of %+v", got[1], other)
		}
		if name := got[1].Spec.Attachment.HostEnd(); v1.CheckInterfaceName(name) == nil { // its deletion would look for it
			t.Errorf("an interface may have the name %q", name)
		}
	})
}
