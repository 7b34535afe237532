package policy

import (
	"net/netip"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// Evaluate decides about a connection between two addresses, as they are after translation. It may be called concurrently.
func (q *Queue) Evaluate(from, to netip.Addr, protocol model.Protocol, port uint16) (v engine.Verdict) {
	q.view(func(e *engine.Engine) { v = e.Evaluate(from, to, protocol, port) })
	return v
}
