package endpointmanager

import (
	"testing"

	"porin.dev/porin/cells/endpoint"
)

// TestReportLimit: it is a part of each answer of GET /v1/status, which a runtime asks for every few seconds.
func TestReportLimit(t *testing.T) {
	var r report
	for range 3 * maxReported {
		r.undone(endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}, "why")
		r.adopted(endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}, []string{"what"})
		r.removed([]string{"a", "b", "c"})
	}
	if r.Undone != 3*maxReported || r.Replaced != 3*maxReported || len(r.Reasons) != maxReported || len(r.Removed) != maxReported {
		t.Errorf("%d undone and %d replaced, for %d reasons; %d removed", r.Undone, r.Replaced, len(r.Reasons), len(r.Removed))
	}
}
