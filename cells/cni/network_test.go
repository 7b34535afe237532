package cni

import (
	"context"
	"net/http"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
)

// suspended is a manager's other side whose ledger is of another network namespace, and which does not go on.
type suspended struct {
	endpointmanager.Holder
	confirmed int
}

func (s *suspended) Confirm(context.Context) error {
	s.confirmed++
	return endpointmanager.ErrSuspended
}

func TestCallsFromOtherNamespace(t *testing.T) {
	a := newTestAgent(t)
	holder := &suspended{}
	a.Holder = holder
	a.caller.NetNSCookie++
	for command, want := range map[string]int{
		"ADD": v1.CNIErrorStatus, "GC": v1.CNIErrorStatus, "STATUS": v1.CNIErrorStatus,
		"DEL": http.StatusServiceUnavailable, // so that the plugin does it without the agent
	} {
		status, answer := a.call(command, nil, `,"cni.dev/valid-attachments":[]`)
		a.wants(command, status, answer, want, "hostNetwork")
	}
	if holder.confirmed > 0 {
		t.Error("a call from another namespace tells which one is the host's")
	}
}

func TestCallsOfSuspendedManager(t *testing.T) {
	a := newTestAgent(t)
	holder := &suspended{}
	a.Holder = holder
	for _, row := range []struct {
		command         string
		status, confirm int
	}{
		{"STATUS", http.StatusOK, 0}, // anybody may ask, and an ADD would end the wait
		{"ADD", v1.CNIErrorStatus, 1},
		{"DEL", http.StatusServiceUnavailable, 1},
		{"GC", v1.CNIErrorStatus, 1},
	} {
		holder.confirmed = 0
		status, answer := a.call(row.command, nil, `,"cni.dev/valid-attachments":[]`)
		a.wants(row.command, status, answer, row.status, "")
		if holder.confirmed != row.confirm {
			t.Errorf("%s tells %d times that the runtime is in the agent's namespace, want %d", row.command, holder.confirmed, row.confirm)
		}
	}
}
