package policy

import (
	"net/netip"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
)

// ConnectionCloser closes what would go on past the [Proxy], or be reset by it, when layer 7 rules come.
type ConnectionCloser interface {
	// Close closes the endpoints' connections of TCP that gain rules by effectOf and do not go through the proxy already. The rules are not in force yet. It returns soon, whatever happens: changes of
	// policies wait. What escapes, the proxy resets.
	Close(locals []Local, effectOf Layer7Effect)
}

// Layer7Effect returns what the next write does to a connection: from who has opened it, and to where, as after the node's translation.
type Layer7Effect func(from, to netip.Addr, port uint16) ConnectionEffect

// ConnectionEffect is what layer 7 rules that come do to an open connection.
type ConnectionEffect int

// The effects. A connection to an address of the node itself cannot go on past the proxy.
const (
	EffectNone             ConnectionEffect = iota // it goes on as it is
	EffectGainsRules                               // it gets layer 7 rules
	EffectGainsRulesAtNode                         // it gets layer 7 rules, and is to an address of the node itself
)

// keepOpen is for a program that closes none.
type keepOpen struct{}

func (keepOpen) Close([]Local, Layer7Effect) {}

// CloseWith has open connections closed when layer 7 rules for them come. It is called before Start.
func (q *Queue) CloseWith(open ConnectionCloser) { q.closer = open }

// numbers are those of the layer 7 rules in an endpoint's rows.
type numbers map[uint32]bool

// closeOpen closes the open connections of endpoints that get layer 7 rules with the next write. It returns which rules each endpoint has then. It expects the turn.
func (q *Queue) closeOpen() map[string]numbers {
	if !q.layer7.inUse() {
		return map[string]numbers{}
	}
	e, ofTable, now := q.view.engine, map[engine.TableID]numbers{}, map[string]numbers{}
	var gained []Local
	for key, local := range q.view.locals {
		now[key] = numbers{}
		for _, direction := range []model.Direction{model.Ingress, model.Egress} {
			table, ok := e.Table(key, direction)
			if !ok {
				continue
			}
			if ofTable[table.ID()] == nil {
				ofTable[table.ID()] = numbersOf(table)
			}
			for number := range ofTable[table.ID()] {
				now[key][number] = true
			}
		}
		if q.known[key] && local.NetNSCookie != 0 && hasMore(now[key], q.numbers[key]) {
			gained = append(gained, local)
		}
	}
	if len(gained) > 0 {
		q.closer.Close(gained, q.layer7Effect)
	}
	return now
}

func numbersOf(table engine.Table) numbers {
	found := numbers{}
	add := func(rows []engine.Row) {
		for _, r := range rows {
			if value := r.Decision.Value(); value > engine.ValueAllow {
				found[value] = true
			}
		}
	}
	add(table.Any())
	for _, rows := range table.Rows() {
		add(rows)
	}
	return found
}

func hasMore(now, before numbers) bool {
	for number := range now {
		if !before[number] {
			return true
		}
	}
	return false
}

// layer7Effect says what becomes of a connection of TCP that is allowed so far and needs the proxy after the next write. One that needs it already is not affected. It
// expects the turn.
func (q *Queue) layer7Effect(from, to netip.Addr, port uint16) ConnectionEffect {
	v := q.view.engine.Evaluate(from, to, model.TCP, port)
	if !v.Allowed || v.Egress.Layer7 == nil && v.Ingress.Layer7 == nil {
		return EffectNone
	}
	isAllowed := func(question Question) bool {
		question.Protocol, question.Port = model.TCP, port
		value, err := q.enforcer.Verdict(question)
		return err == nil && value == engine.ValueAllow
	}
	if local, ok := q.view.locals[v.From.Endpoint]; ok && !isAllowed(Question{Local: local, Direction: model.Egress, Peer: to}) {
		return EffectNone
	}
	if local, ok := q.view.locals[v.To.Endpoint]; ok && !isAllowed(Question{Local: local, Direction: model.Ingress, Peer: from, FromNode: v.From.Kind == model.Host}) {
		return EffectNone
	}
	if v.To.Kind == model.Host {
		return EffectGainsRulesAtNode
	}
	return EffectGainsRules
}
