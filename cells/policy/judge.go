package policy

import (
	"net/netip"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// Judgement is what the policies say of a connection, and whose its ends are.
type Judgement struct {
	From, To        Side
	Egress, Ingress engine.Decision // the connection is allowed if both allow it
	// AuditEgress and AuditIngress are what the decisions would be if nothing was in audit; nil for the same.
	AuditEgress, AuditIngress *engine.Decision
}

// Side is one end of a connection, as the engine knows it.
type Side struct {
	Kind     model.EndpointKind
	Class    engine.ClassID
	Endpoint string // the ID in the engine, that of a pod's interface is its attachment; "" when no endpoint has the address
}

// Judge decides about a connection between two addresses, as they are after translation. It may be called concurrently.
func (q *Queue) Judge(from, to netip.Addr, protocol model.Protocol, port uint16) (j Judgement) {
	q.view(func(e *engine.Engine) {
		j.From, j.To = sideOf(e, from), sideOf(e, to)
		decision := e.Evaluate(from, to, protocol, port)
		j.Egress, j.Ingress = decision.Egress, decision.Ingress
		j.AuditEgress, j.AuditIngress = decision.AuditEgress, decision.AuditIngress
	})
	return j
}

func sideOf(e *engine.Engine, addr netip.Addr) Side {
	class, _ := e.Class(addr)
	return Side{Kind: e.Kind(addr), Class: class, Endpoint: e.Endpoint(addr)}
}
