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

// What rows take: memory counts, too.
const (
	setWork = 128
	rowWork = 64
)

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
	if known := t.seen[string(key)]; known != nil {
		return known
	}
	// Each rule is asked once, and once more for each end of its ports. Layer 7 rules are joined and sorted there.
	ends, layer7 := 1, 0
	for _, i := range rules {
		r := &t.rules[i]
		ends += 2 * len(r.ports)
		if r.layer7 != nil {
			layer7 += 8 * len(r.layer7.entries)
		}
	}
	work := setWork + len(rules) + ends*(8+layer7)
	t.work += work
	if x.size.addWork(work); x.size.exceeded {
		return noRows
	}
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
	if t.icmp { // else it is decided as the protocols without ports
		for _, protocol := range []model.Protocol{model.ICMP, model.ICMPv6} {
			echo, others := t.decide(rules, nil, protocol, protocol.EchoRequest()), t.decide(rules, nil, protocol, model.OtherTypes)
			if echo != rest {
				rows = append(rows, Row{Protocol: protocol, Decision: echo})
			}
			if others != echo {
				rows = append(rows, Row{Protocol: protocol, Port: model.OtherTypes, Bits: 16, Decision: others})
			}
		}
	}
	t.work += rowWork * len(rows)
	x.size.addWork(rowWork * len(rows))
	set := &rowSet{rows}
	t.seen[string(key)] = set
	return set
}

// span is a range of ports with one decision.
type span struct {
	first, last uint16
	decision    Decision
}

// spans divides the ports where a rule begins or ends, and joins neighbours of equal decision. It takes time for each
// end of a rule's ports, and not for each rule at each of them.
func (x *tables) spans(t *table, rules []int32, ports []model.NamedPort, protocol model.Protocol) (spans []span) {
	type edge struct { // where a range of a rule's ports begins or has ended
		port  uint32 // up to 65536
		rule  int32  // its index in rules
		begin bool
	}
	var edges []edge
	open := make([]int32, len(rules))          // by index of the rule: ranges that have begun
	hits := make([]uint64, (len(rules)+63)/64) // a bit for each index: the rules for the present ports
	for i, number := range rules {
		r := &t.rules[number]
		if r.layer7 != nil && !r.layer7.concerns(protocol) {
			continue
		}
		if len(r.ports) == 0 {
			hits[i/64] |= 1 << (i % 64)
		}
		for _, p := range r.ports {
			for first, last := range resolvePort(p, ports, protocol) {
				edges = append(edges, edge{uint32(first), int32(i), true}, edge{uint32(last) + 1, int32(i), false})
			}
		}
	}
	slices.SortFunc(edges, func(x, y edge) int { return cmp.Compare(x.port, y.port) })
	next := func(i int) int {
		for word := i / 64; word < len(hits); word++ {
			left := hits[word]
			if word == i/64 {
				left &= ^uint64(0) << (i % 64)
			}
			if left != 0 {
				return 64*word + bits.TrailingZeros64(left)
			}
		}
		return len(rules)
	}
	for first := uint32(0); first <= 65535; {
		for ; len(edges) > 0 && edges[0].port == first; edges = edges[1:] {
			rule := edges[0].rule
			if edges[0].begin {
				open[rule]++
			} else {
				open[rule]--
			}
			if word, bit := rule/64, uint64(1)<<(rule%64); open[rule] > 0 {
				hits[word] |= bit
			} else {
				hits[word] &^= bit
			}
		}
		end := uint32(65536)
		if len(edges) > 0 {
			end = edges[0].port
		}
		decision := t.decideByHits(rules, next)
		if decision.Layer7 != nil {
			decision.Layer7 = x.intern(t, decision.Layer7)
		} else if decision.Reason == ReasonLayer7Conflict {
			for i := next(0); i < len(rules); i = next(i + 1) {
				if r := &t.rules[rules[i]]; r.layer7 != nil {
					t.conflicts[r.rule] = struct{}{}
				}
			}
		}
		if n := len(spans); n > 0 && spans[n-1].decision == decision {
			spans[n-1].last = uint16(end - 1)
		} else {
			spans = append(spans, span{uint16(first), uint16(end - 1), decision})
		}
		first = end
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

// decide evaluates the rules that match a peer, for one port. Protocol 0 stands for those without ports. The layer 7
// rules are not interned.
func (t *table) decide(matching []int32, ports []model.NamedPort, protocol model.Protocol, port uint16) Decision {
	return t.decideByHits(matching, func(i int) int {
		for i < len(matching) && !t.rules[matching[i]].hits(ports, protocol, port) {
			i++
		}
		return i
	})
}

// decideByHits evaluates the rules that match a peer. Of those, next finds the ones for the port: it returns the index
// of the first from i on, or the length of matching.
func (t *table) decideByHits(matching []int32, next func(i int) int) Decision {
	if t.unknown {
		return Decision{Reason: ReasonUnknownLabels}
	}
	var d Decision
	var asking []*compiledRule // which accept it, and have layer 7 rules
	i := next(0)
	for tier := model.TierAdmin; tier <= model.TierBaseline; tier++ {
		for i < len(matching) && t.rules[matching[i]].tier < tier {
			i = next(i + 1) // passed over
		}
		for i < len(matching) && t.rules[matching[i]].tier == tier {
			r := &t.rules[matching[i]]
			i = next(i + 1)
			if r.layer7 != nil {
				asking = append(asking, r) // another rule may accept all that is asked for
				continue
			}
			if r.action != model.Pass {
				d.Allowed, d.Reason, d.Rule = r.action == model.Accept, ReasonRule, r.rule
				return d
			}
			if tier == model.TierAdmin {
				d.Passed[0] = r.rule
			} else {
				d.Passed[1] = r.rule
			}
			break
		}
		if len(asking) > 0 {
			d.Reason, d.Rule, d.Layer7 = ReasonRule, asking[0].rule, unionOf(asking)
			if d.Allowed = d.Layer7 != nil; !d.Allowed {
				d.Reason = ReasonLayer7Conflict
			}
			return d
		}
		if tier == model.TierNetworkPolicy && t.denies != nil {
			d.Reason, d.Rule = ReasonDefaultDeny, t.denies
			return d
		}
	}
	d.Allowed, d.Reason = true, ReasonNoPolicy
	if t.selected {
		d.Reason = ReasonNoRule
	}
	return d
}

func (r *compiledRule) hits(ports []model.NamedPort, protocol model.Protocol, port uint16) bool {
	if r.layer7 != nil && !r.layer7.concerns(protocol) {
		return false
	}
	if len(r.ports) == 0 {
		return true
	}
	for _, p := range r.ports {
		for first, last := range resolvePort(p, ports, protocol) {
			if first <= port && port <= last {
				return true
			}
		}
	}
	return false
}

// resolvePort gives the ranges of ports of a protocol that a rule's port means.
func resolvePort(p model.Port, named []model.NamedPort, protocol model.Protocol) iter.Seq2[uint16, uint16] {
	return func(yield func(first, last uint16) bool) {
		if p.Name == "" {
			if p.Protocol == protocol {
				yield(p.First, p.Last)
			}
			return
		}
		if !protocol.HasPorts() {
			return
		}
		for _, n := range named {
			if n.Name == p.Name && n.Protocol == protocol && (p.Protocol == 0 || p.Protocol == protocol) && !yield(n.Number, n.Number) {
				return
			}
		}
	}
}
