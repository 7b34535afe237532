package endpointmanager

import (
	"testing"

	"porin.dev/porin/cells/endpoint"
)

// An endpoint that the agent made for itself is in no runtime's list, and is not counted.
func TestGCLeavesHealthEndpoint(t *testing.T) {
	m := started(t, t.TempDir(), &probe{})
	attachment := endpoint.Attachment{ContainerID: "porin-health", IfName: "eth0"}
	for _, spec := range []endpoint.Spec{
		{Attachment: attachment, Kind: endpoint.KindHealth, Network: "porin"},
		{Attachment: endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}, Network: "porin"},
	} {
		if _, err := m.Create(t.Context(), spec, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		m.Collect(t.Context(), GC{Network: "porin"})
	}
	if list := m.table.List(); len(list) != 1 || list[0].Spec.Attachment != attachment {
		t.Errorf("left: %+v", list)
	}
}
