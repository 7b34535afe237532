package policy

import (
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// ConnectionCloser closes connections of TCP when layer 7 rules for them come: they would go on past the [Proxy], or be reset by it.
type ConnectionCloser interface {
	// Begin finds the connections of the endpoints. It returns soon, as does what it returns: changes of policies wait.
	Begin(locals []Local) Closing
}

// Closing closes the connections of some endpoints: before the rules are written, unless the last write has failed, and once more after a write that succeeds, as connections
// are opened meanwhile. What it misses, the proxy resets with its next packet. Its methods are called one after the other.
type Closing interface {
	// Close closes the connections that are affected by effectOf, and do not go through the proxy. After the first call, only those that were established since.
	Close(effectOf Layer7Effect)
	// End releases what Begin has opened.
	End()
}

// Layer7Effect returns what layer 7 rules that come do to a connection: from who has opened it, and to where, as after the node's translation.
type Layer7Effect func(from, to netip.Addr, port uint16) ConnectionEffect

// ConnectionEffect is what layer 7 rules that come do to an open connection.
type ConnectionEffect int

// The effects. A connection to an address of the node itself cannot go on past the proxy.
const (
	EffectNone             ConnectionEffect = iota // it goes on as it is
	EffectGainsRules                               // it gets layer 7 rules
	EffectGainsRulesAtNode                         // it gets layer 7 rules, and is to an address of the node itself
)

// noCloser is for a program that closes none.
type noCloser struct{}

func (noCloser) Begin([]Local) Closing { return noCloser{} }
func (noCloser) Close(Layer7Effect)    {}
func (noCloser) End()                  {}

// CloseWith has open connections closed when layer 7 rules for them come. It is called before Start.
func (q *Queue) CloseWith(open ConnectionCloser) { q.closer = open }

// beginClosing closes the open connections of endpoints that get layer 7 rules with the next write. The caller has it closed again after the write, and calls End. It expects
// the turn.
func (q *Queue) beginClosing() Closing {
	if q.view.applied.Revision == 0 {
		q.addGainingAtStart()
	}
	if len(q.gaining) == 0 || len(q.view.engine.Layer7()) == 0 {
		return noCloser{}
	}
	var gaining []Local
	for key := range q.gaining {
		if local := q.view.locals[key]; local.NetNSCookie != 0 {
			gaining = append(gaining, local)
		}
	}
	if len(gaining) == 0 {
		return noCloser{}
	}
	closing := q.closer.Begin(gaining)
	if q.view.applied.Err == nil { // while writes fail, connections would be closed for nothing with each try
		closing.Close(q.effectOfNextWrite)
	}
	return closing
}

// addGainingAtStart is for the first write, before which the engine has compared nothing. An endpoint gains rules if it has some that no row of the kernel's has: the
// previous agent was in audit, or has ended before it could write them.
func (q *Queue) addGainingAtStart() {
	if len(q.view.engine.Layer7()) == 0 {
		return
	}
	inKernel, err := q.enforcer.Layer7()
	if err != nil {
		q.log.Warn("cannot read which layer 7 rules the kernel has; open connections that get some are not closed, but reset with their next packet", "error", err)
		return
	}
	for key := range q.view.locals {
		for _, direction := range []model.Direction{model.Ingress, model.Egress} {
			table, ok := q.view.engine.Table(key, direction)
			if ok && slices.ContainsFunc(table.Layer7(), func(l *engine.Layer7) bool { return !inKernel[l.Number] }) {
				q.gaining[key] = struct{}{}
			}
		}
	}
}

// effectOfNextWrite says what becomes of a connection of TCP that is allowed so far and needs the proxy after the next write. One that needs it already is not
// affected. It expects the turn.
func (q *Queue) effectOfNextWrite(from, to netip.Addr, port uint16) ConnectionEffect {
	return q.effect(from, to, port, func(values []uint32) bool {
		return !slices.ContainsFunc(values, func(value uint32) bool { return value != engine.ValueAllow })
	})
}

// effectOfLastWrite says what has become of a connection of TCP that was opened just before the last write, and needs the proxy since. It expects the turn.
func (q *Queue) effectOfLastWrite(from, to netip.Addr, port uint16) ConnectionEffect {
	isProxied := func(value uint32) bool { return value > engine.ValueAllow }
	return q.effect(from, to, port, func(values []uint32) bool { return slices.ContainsFunc(values, isProxied) })
}

// effect is what the rules that the engine has now do to a connection. matches gets the values of the kernel's rows for the ends on this node. Ends on other nodes do not
// count: those nodes enforce the rules for them.
func (q *Queue) effect(from, to netip.Addr, port uint16, matches func(values []uint32) bool) ConnectionEffect {
	v := q.view.engine.Evaluate(from, to, model.TCP, port)
	var values []uint32
	proxied := false
	for _, end := range []struct {
		Question
		next engine.Decision
	}{
		{Question{Local: q.view.locals[v.From.Endpoint], Direction: model.Egress, Peer: to}, v.Egress},
		{Question{Local: q.view.locals[v.To.Endpoint], Direction: model.Ingress, Peer: from, FromNode: v.From.Kind == model.Host}, v.Ingress},
	} {
		if end.Local.ID == 0 {
			continue
		}
		if !end.next.Allowed {
			return EffectNone
		}
		proxied = proxied || end.next.Layer7 != nil
		end.Protocol, end.Port = model.TCP, port
		value, err := q.enforcer.Verdict(end.Question)
		if err != nil {
			return EffectNone
		}
		values = append(values, value)
	}
	switch {
	case !proxied || !matches(values):
		return EffectNone
	case v.To.Kind == model.Host:
		return EffectGainsRulesAtNode
	default:
		return EffectGainsRules
	}
}
