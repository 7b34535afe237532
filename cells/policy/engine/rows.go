package engine

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// Row is a decision for destination ports. Of ICMP and ICMPv6, port 0 is all types but echo requests; those have any other port, as the programs take the identifier for one. Of the rows that match, the one with a protocol comes before the one without, and the
// longer prefix before the one without bits; others never match together.
type Row struct {
	Protocol model.Protocol // 0: every protocol that has no row which matches
	Port     uint16
	Bits     uint8 // of Port that count; 0: every port
	Decision Decision
}

type rowSet struct{ rows []Row }

// Rows of classes that policies do not apply to.
var (
	hostRows      = &rowSet{[]Row{{Decision: Decision{Allowed: true, Reason: ReasonHost}}}}
	unmanagedRows = &rowSet{[]Row{{Decision: Decision{Allowed: true, Reason: ReasonUnmanaged}}}}
)

func (r *rowSet) equal(other *rowSet) bool { return slices.Equal(r.rows, other.rows) }

// noRows are the rows of an engine that has exceeded its size.
var noRows = &rowSet{}

// rowsFor returns the complete rows of a class that the rules match.
func (t *table) rowsFor(e *Engine, rules []int32, ports []model.NamedPort) *rowSet {
	if t.direction == model.Ingress {
		ports = t.ports
	}
	key := make([]byte, 0, 4*len(rules)+16)
	for _, i := range rules {
		key = binary.BigEndian.AppendUint32(key, uint32(i))
	}
	if t.named {
		key = append(append(key, '/'), portsKey(ports)...)
	}
	rows := t.seen[string(key)]
	if rows == nil {
		work := t.workFor(rules)
		t.work += work
		if e.size.addWork(work); e.size.exceeded {
			return noRows
		}
		rows = &rowSet{t.resolve(e, rules, ports)}
		t.work += rowWork * len(rows.rows)
		e.size.addWork(rowWork * len(rows.rows))
		t.seen[string(key)] = rows
	}
	return rows
}

// span is a range of ports with one decision.
type span struct {
	first, last uint16
	decision    Decision
}

func (t *table) resolve(e *Engine, rules []int32, ports []model.NamedPort) []Row {
	rest := t.decide(rules, ports, 0, 0)
	rows := []Row{{Decision: rest}}
	for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		spans := t.spans(e, rules, ports, protocol)
		fallback := costliest(spans, rest)
		if fallback != rest {
			rows = append(rows, Row{Protocol: protocol, Decision: fallback})
		}
		for _, s := range spans {
			if s.decision == fallback {
				continue
			}
			for port, bits := range s.prefixes() {
				rows = append(rows, Row{Protocol: protocol, Port: port, Bits: bits, Decision: s.decision})
			}
		}
	}
	if t.icmp {
		rows = append(append(rows, t.icmpRows(rules, model.ICMP, rest)...), t.icmpRows(rules, model.ICMPv6, rest)...)
	}
	return rows
}

// icmpRows returns what differs from the decision about protocols without ports.
func (t *table) icmpRows(rules []int32, protocol model.Protocol, rest Decision) (rows []Row) {
	echo, others := t.decide(rules, nil, protocol, protocol.EchoRequest()), t.decide(rules, nil, protocol, model.OtherTypes)
	if echo != rest {
		rows = append(rows, Row{Protocol: protocol, Decision: echo})
	}
	if others != echo {
		rows = append(rows, Row{Protocol: protocol, Port: model.OtherTypes, Bits: 16, Decision: others})
	}
	return rows
}

// spans divides the ports where a rule begins or ends, and joins neighbours of equal decision.
func (t *table) spans(e *Engine, rules []int32, ports []model.NamedPort, protocol model.Protocol) []span {
	sweep := newSweep(t, rules, ports, protocol)
	var spans []span
	for first, last := range sweep.ranges() {
		decision := t.decideByHits(rules, sweep.next)
		if decision.Layer7 != nil {
			decision.Layer7 = t.intern(e, decision.Layer7)
		} else if decision.Reason == ReasonLayer7Conflict {
			t.noteConflict(rules, ports, protocol, first)
		}
		if n := len(spans); n > 0 && spans[n-1].decision == decision {
			spans[n-1].last = last
			continue
		}
		spans = append(spans, span{first, last, decision})
	}
	return spans
}

// costliest returns the decision that one row without bits saves most rows for; the decision of the other protocols needs no row.
func costliest(spans []span, rest Decision) Decision {
	if len(spans) == 1 {
		return spans[0].decision
	}
	costs := map[Decision]int{rest: 1}
	for _, s := range spans {
		for range s.prefixes() {
			costs[s.decision]++
		}
	}
	best, most := rest, 0
	for _, s := range spans {
		if cost := costs[s.decision]; cost > most {
			best, most = s.decision, cost
		}
	}
	return best
}

// prefixes covers a span with the fewest prefixes.
func (s span) prefixes() iter.Seq2[uint16, uint8] {
	return func(yield func(port uint16, bits uint8) bool) {
		for first, end := uint32(s.first), uint32(s.last)+1; first < end; {
			size := min(bits.TrailingZeros32(first|1<<16), bits.Len32(end-first)-1)
			if !yield(uint16(first), uint8(16-size)) {
				return
			}
			first += 1 << size
		}
	}
}
