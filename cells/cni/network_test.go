package cni

import (
	"net/http"
	"testing"

	v1 "porin.dev/porin/api/v1"
)

func TestCallsFromOtherNamespace(t *testing.T) {
	a := newTestAgent(t)
	a.caller.NetNSCookie++
	for command, want := range map[string]int{
		"ADD": v1.CNIErrorStatus, "GC": v1.CNIErrorStatus, "STATUS": v1.CNIErrorStatus,
		"DEL": http.StatusServiceUnavailable, // so that the plugin does it without the agent
	} {
		status, answer := a.call(command, nil, `,"cni.dev/valid-attachments":[]`)
		a.wants(command, status, answer, want, "hostNetwork")
	}
}
