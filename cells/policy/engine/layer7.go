package engine

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"porin.dev/porin/cells/policy/model"
)

// The values of rows in a datapath that are no number of layer 7 rules.
const (
	ValueDeny  uint32 = 0
	ValueAllow uint32 = 1
)

// The numbers of layer 7 rules have 31 bits.
const (
	minNumber uint32 = ValueAllow + 1
	maxNumber uint32 = 1<<31 - 1
)

// Layer7 are the layer 7 rules of a decision, from all rules that accept the connection, each once and in a fixed
// order. In an engine, equal sets in rows are one.
type Layer7 struct {
	// Number stands for them in rows. It is derived from the rules and the engine's key, so it is the same after a
	// restart. 0: no row of this node has them.
	Number  uint32
	Rules   model.Layer7
	content string // equal for equal rules
	tables  int    // whose rows have them
	// withheld has rows deny in their place.
	withheld bool
}

// Value is what a row of the datapath has for the decision: [ValueDeny], [ValueAllow], or the number of the layer 7
// rules. [Engine.WithholdLayer7] changes it.
func (d Decision) Value() uint32 {
	switch {
	case !d.Allowed || d.Layer7 != nil && d.Layer7.withheld:
		return ValueDeny
	case d.Layer7 != nil:
		return d.Layer7.Number
	}
	return ValueAllow
}

// equal is == for decisions whose layer 7 rules may be in no row.
func (d Decision) equal(other Decision) bool {
	if d.SameLayer7(other) {
		other.Layer7 = d.Layer7
	}
	return d == other
}

// SameLayer7 reports whether two decisions have the same layer 7 rules, or both none.
func (d Decision) SameLayer7(other Decision) bool {
	if d.Layer7 == nil || other.Layer7 == nil {
		return d.Layer7 == other.Layer7
	}
	return d.Layer7.content == other.Layer7.content
}

// compiledLayer7 is what one rule of a policy asks of layer 7.
type compiledLayer7 struct {
	http, dns bool
	entries   []layer7Entry
	alone     *Layer7 // when no other rule accepts the connection, too
}

// layer7Entry is one rule of layer 7.
type layer7Entry struct {
	content string // equal for equal rules
	http    *model.HTTPRule
	dns     *model.DNSRule
}

// compileLayer7 returns nil for nil.
func compileLayer7(rules *model.Layer7) *compiledLayer7 {
	if rules == nil {
		return nil
	}
	l := &compiledLayer7{http: len(rules.HTTP) > 0, dns: len(rules.DNS) > 0}
	for _, r := range rules.HTTP {
		r.Headers = slices.SortedFunc(slices.Values(r.Headers), func(x, y model.HTTPHeader) int {
			return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Value, y.Value), cmp.Compare(strconv.FormatBool(x.AnyValue), strconv.FormatBool(y.AnyValue)))
		})
		r.Headers = slices.Compact(r.Headers)
		text := append(appendQuoted(nil, "http", r.Method, r.Path, r.Host), '[')
		for _, h := range r.Headers {
			text = appendQuoted(text, h.Name, h.Value, strconv.FormatBool(h.AnyValue))
		}
		l.entries = append(l.entries, layer7Entry{content: string(text), http: &r})
	}
	for _, r := range rules.DNS {
		l.entries = append(l.entries, layer7Entry{content: string(appendQuoted(nil, "dns", r.Name, r.Pattern)), dns: &r})
	}
	l.alone = merge(l.entries)
	return l
}

func appendQuoted(to []byte, texts ...string) []byte {
	for _, text := range texts {
		to = strconv.AppendQuote(to, text)
	}
	return to
}

// concerns reports whether the rules can be applied to the protocol: HTTP is asked for over TCP, DNS over both.
func (l *compiledLayer7) concerns(protocol model.Protocol) bool {
	return protocol == model.TCP && (l.http || l.dns) || protocol == model.UDP && l.dns
}

// merge returns the entries, each once.
func merge(entries []layer7Entry) *Layer7 {
	entries = slices.SortedFunc(slices.Values(entries), func(x, y layer7Entry) int { return strings.Compare(x.content, y.content) })
	entries = slices.CompactFunc(entries, func(x, y layer7Entry) bool { return x.content == y.content })
	l := &Layer7{}
	var content []string
	for _, entry := range entries {
		content = append(content, entry.content)
		if entry.http != nil {
			l.Rules.HTTP = append(l.Rules.HTTP, *entry.http)
		} else {
			l.Rules.DNS = append(l.Rules.DNS, *entry.dns)
		}
	}
	l.content = strings.Join(content, "\n")
	return l
}

// unionOf returns the union of the rules, or nil if they are for several protocols: a connection's protocol is unknown.
func unionOf(rules []*compiledRule) *Layer7 {
	http, dns := false, false
	var entries []layer7Entry
	for _, r := range rules {
		http, dns = http || r.layer7.http, dns || r.layer7.dns
		if len(rules) > 1 {
			entries = append(entries, r.layer7.entries...)
		}
	}
	switch {
	case http && dns:
		return nil
	case len(rules) == 1:
		return rules[0].layer7.alone
	}
	return merge(entries)
}

// work is what it takes to keep them, in the unit of [size].
func (l *Layer7) work() int { return 2*len(l.content) + 256*(len(l.Rules.HTTP)+len(l.Rules.DNS)) }

// layer7s are the rule sets that have a number.
type layer7s struct {
	key       []byte
	byContent map[string]*Layer7
	byNumber  map[uint32]*Layer7
}

func newLayer7s() *layer7s {
	return &layer7s{byContent: map[string]*Layer7{}, byNumber: map[uint32]*Layer7{}}
}

// number gives unknown rules the number of their hash, or the next free number.
func (x *layer7s) number(l Layer7) *Layer7 {
	hash := hmac.New(sha256.New, x.key)
	hash.Write([]byte(l.content))
	l.Number = minNumber + uint32(binary.BigEndian.Uint64(hash.Sum(nil))%uint64(maxNumber-minNumber+1))
	for x.byNumber[l.Number] != nil {
		if l.Number++; l.Number > maxNumber {
			l.Number = minNumber
		}
	}
	x.byContent[l.content], x.byNumber[l.Number] = &l, &l
	return &l
}

// intern returns the rules as the table's rows have them.
func (x *tables) intern(t *table, l *Layer7) *Layer7 {
	known := x.layer7s.byContent[l.content]
	if known == nil {
		known = x.layer7s.number(*l)
		x.size.addWork(known.work())
	}
	if _, again := t.layer7s[known]; !again {
		t.layer7s[known] = struct{}{}
		known.tables++
	}
	return known
}

// list has them in the order of their numbers.
func (x *layer7s) list(is func(*Layer7) bool) (found []*Layer7) {
	for _, l := range x.byNumber {
		if is(l) {
			found = append(found, l)
		}
	}
	slices.SortFunc(found, func(x, y *Layer7) int { return cmp.Compare(x.Number, y.Number) })
	return found
}
