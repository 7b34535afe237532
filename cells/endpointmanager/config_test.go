package endpointmanager

import (
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/admission"
)

func TestLaneOfPod(t *testing.T) {
	cfg := DefaultConfig()
	for pod, want := range map[endpoint.Pod]admission.Lane{
		{}:                         admission.Fair,
		{Namespace: "default"}:     admission.Fair,
		{Namespace: "kube-system"}: admission.Critical,
		{Namespace: "default", PriorityClass: "system-node-critical"}: admission.Critical,
		{Namespace: "default", PriorityClass: "high"}:                 admission.Fair,
	} {
		if got := cfg.laneOf(pod); got != want {
			t.Errorf("%+v is in lane %s, want %s", pod, got, want)
		}
	}
}
