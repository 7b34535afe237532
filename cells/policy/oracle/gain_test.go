package oracle_test

import (
	"fmt"
	"slices"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
)

// openConnection is one of TCP that an end on this node accepts without layer 7 rules.
type openConnection struct {
	oracle.Connection
	end       string // the key of the endpoint
	direction model.Direction
	peer      string // the key of the other end, if it is an endpoint
	why       string // why it is accepted
}

// openConnections are among the connections, which an update follows.
func openConnections(e *engine.Engine, connections []oracle.Connection) (open []openConnection) {
	for _, c := range connections {
		v := e.Evaluate(c.From, c.To, model.TCP, c.Port)
		for _, o := range []openConnection{{c, v.From.Endpoint, model.Egress, v.To.Endpoint, v.Egress.String()}, {c, v.To.Endpoint, model.Ingress, v.From.Endpoint, v.Ingress.String()}} {
			if _, ok := e.Table(o.end, o.direction); ok && o.end != o.peer && o.isDirect(v) {
				open = append(open, o)
			}
		}
	}
	return open
}

func (o openConnection) decision(v engine.Verdict) engine.Decision {
	if o.direction == model.Egress {
		return v.Egress
	}
	return v.Ingress
}

func (o openConnection) isDirect(v engine.Verdict) bool {
	d := o.decision(v)
	return d.Allowed && d.Layer7 == nil
}

// missedGain says which of the connections has got layer 7 rules by the update, and the change does not have its end. It counts those that have got some.
func missedGain(e *engine.Engine, u engine.Update, change engine.Change, open []openConnection, seen *counts) string {
	for _, o := range open {
		v := e.Evaluate(o.From, o.To, model.TCP, o.Port)
		end, peer := v.From, v.To
		if o.direction == model.Ingress {
			end, peer = v.To, v.From
		}
		isGone := end.Endpoint != o.end || !stays(e, u, o.end) || peer.Endpoint == "" && o.peer != ""
		if d := o.decision(v); isGone || !d.Allowed || d.Layer7 == nil {
			continue
		}
		if seen.gained++; !slices.Contains(change.Gaining, o.end) {
			return fmt.Sprintf("%s -> %s TCP %d, %s: has layer 7 rules now, and was %s; %s is not among %q", o.From, o.To, o.Port, o.direction, o.why, o.end, change.Gaining)
		}
	}
	return ""
}

// stays reports whether an endpoint of this node was one all the time during the update.
func stays(e *engine.Engine, u engine.Update, key string) bool {
	changes := 0
	for _, ep := range u.SetEndpoints {
		if ep.Key == key {
			changes++
		}
	}
	_, isLocal := e.Table(key, model.Egress)
	return isLocal && changes < 2 && !slices.Contains(u.RemoveEndpoints, key)
}

// tcpConnections are some of the world's.
func tcpConnections(r oracle.Random, w oracle.World) (found []oracle.Connection) {
	for range 20 {
		c := r.Connection(w)
		c.Protocol = model.TCP
		found = append(found, c)
	}
	return found
}
