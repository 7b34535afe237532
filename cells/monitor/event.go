package monitor

import (
	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/fault"
)

func eventOf(trace endpoint.Trace) v1.Event {
	ep := endpointmanager.ToV1(trace.Endpoint)
	return v1.Event{
		Type:      typeOf(trace),
		Endpoint:  &ep,
		Operation: string(trace.Operation),
		Phases:    phasesOf(trace.Phases),
		Error:     fault.Text(trace.Err),
	}
}

func typeOf(trace endpoint.Trace) string {
	switch {
	case trace.Err != nil:
		return v1.EventEndpointFailed
	case trace.Operation == endpoint.OperationAdd:
		return v1.EventEndpointCreated
	case trace.Operation == endpoint.OperationDel:
		return v1.EventEndpointDeleted
	default:
		return v1.EventEndpointRestored
	}
}

func phasesOf(phases []endpoint.Phase) []v1.Phase {
	out := make([]v1.Phase, len(phases))
	for i, p := range phases {
		out[i] = v1.Phase{Name: p.Name, Duration: p.Duration, Error: fault.Text(p.Err)}
	}
	return out
}
