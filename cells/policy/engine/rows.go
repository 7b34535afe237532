package engine

import (
	"cmp"
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// Row is a decision for destination ports. Of ICMP and ICMPv6, port 0 is all types but echo requests; those have any
// other port, as the programs take the identifier for one. Of the rows that match, the one with a protocol comes before
// the one without, and the longer prefix before the one without bits; others never match together.
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
func (x *tables) rowsFor(t *table, rules []int32, ports []model.NamedPort) *rowSet {
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
		if x.size.addWork(work); x.size.exceeded {
			return noRows
		}
		rows = &rowSet{x.resolve(t, rules, ports)}
		t.work += rowWork * len(rows.rows)
		x.size.addWork(rowWork * len(rows.rows))
		t.seen[string(key)] = rows
	}
	return rows
}

// rowWork is what a row takes: memory counts, too.
const rowWork = 64

// workFor is what it takes to find the rows for rules: each is asked once, and once more for each end of its ports.
// Layer 7 rules are joined and sorted there.
func (t *table) workFor(rules []int32) int {
	const ofSet = 128
	ends, layer7 := 1, 0
	for _, i := range rules {
		r := &t.rules[i]
		ends += 2 * len(r.ports)
		if r.layer7 != nil {
			layer7 += 8 * len(r.layer7.entries)
		}
	}
	return ofSet + len(rules) + ends*(8+layer7)
}

// span is a range of ports with one decision.
type span struct {
	first, last uint16
	decision    Decision
}

func (x *tables) resolve(t *table, rules []int32, ports []model.NamedPort) []Row {
	rest := t.decide(rules, ports, 0, 0)
	rows := []Row{{Decision: rest}}
	for _, protocol := range []model.Protocol{model.TCP, model.UDP, model.SCTP} {
		spans := x.spans(t, rules, ports, protocol)
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
func (x *tables) spans(t *table, rules []int32, ports []model.NamedPort, protocol model.Protocol) []span {
	sweep := newSweep(t, rules, ports, protocol)
	var spans []span
	for first, last := range sweep.ranges() {
		decision := t.decideByHits(rules, sweep.next)
		if decision.Layer7 != nil {
			decision.Layer7 = x.intern(t, decision.Layer7)
		} else if decision.Reason == ReasonLayer7Conflict {
			t.recordConflict(rules, ports, protocol, first)
		}
		if n := len(spans); n > 0 && spans[n-1].decision == decision {
			spans[n-1].last = last
			continue
		}
		spans = append(spans, span{first, last, decision})
	}
	return spans
}

// costliest returns the decision that one row without bits saves most rows for; the decision of the other protocols
// needs no row.
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

// sweep goes over all ports of a protocol in their order, and knows which of the rules that match a peer hit the
// present ones. It takes time for each end of a rule's ports, and not for each rule at each of them.
type sweep struct {
	edges []edge
	open  []int32  // by index of the rule: ranges that have begun
	hits  []uint64 // a bit for each index
	rules int
}

// edge is where a range of a rule's ports begins or has ended.
type edge struct {
	port  uint32 // up to 65536
	rule  int32  // index
	begin bool
}

// newSweep is for the rules of the table with these indexes. The ports have names.
func newSweep(t *table, rules []int32, ports []model.NamedPort, protocol model.Protocol) *sweep {
	s := &sweep{open: make([]int32, len(rules)), hits: make([]uint64, (len(rules)+63)/64), rules: len(rules)}
	for i, number := range rules {
		r := &t.rules[number]
		if r.layer7 != nil && !r.layer7.concerns(protocol) {
			continue
		}
		if len(r.ports) == 0 {
			s.hits[i/64] |= 1 << (i % 64)
		}
		for _, p := range r.ports {
			for first, last := range resolvePort(p, ports, protocol) {
				s.edges = append(s.edges, edge{uint32(first), int32(i), true}, edge{uint32(last) + 1, int32(i), false})
			}
		}
	}
	slices.SortFunc(s.edges, func(x, y edge) int { return cmp.Compare(x.port, y.port) })
	return s
}

// ranges goes over the ports, from one edge to the next.
func (s *sweep) ranges() iter.Seq2[uint16, uint16] {
	return func(yield func(first, last uint16) bool) {
		edges := s.edges
		for first := uint32(0); first <= 65535; {
			for ; len(edges) > 0 && edges[0].port == first; edges = edges[1:] {
				rule := edges[0].rule
				if edges[0].begin {
					s.open[rule]++
				} else {
					s.open[rule]--
				}
				if word, bit := rule/64, uint64(1)<<(rule%64); s.open[rule] > 0 {
					s.hits[word] |= bit
				} else {
					s.hits[word] &^= bit
				}
			}
			end := uint32(65536)
			if len(edges) > 0 {
				end = edges[0].port
			}
			if !yield(uint16(first), uint16(end-1)) {
				return
			}
			first = end
		}
	}
}

// next returns the index of the first rule from i on that hits the present ports, or the number of rules.
func (s *sweep) next(i int) int {
	for word := i / 64; word < len(s.hits); word++ {
		left := s.hits[word]
		if word == i/64 {
			left &= ^uint64(0) << (i % 64)
		}
		if left != 0 {
			return 64*word + bits.TrailingZeros64(left)
		}
	}
	return s.rules
}
