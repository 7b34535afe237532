package engine

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"porin.dev/porin/cells/policy/model"
)

// selector is what a peer selects by. It lives as long as a rule uses it.
type selector struct {
	id     uint32 // grows, never used again
	key    string
	peer   model.Peer // Pods, Nodes, Block or Domain
	refs   int
	sets   map[*selectorSet]struct{}
	tables map[*table]struct{}
	// addresses are a domain's addresses.
	addresses map[netip.Addr]struct{}
}

// selectorSet has selectors, in the order of their numbers. Equal ones are one.
type selectorSet struct {
	key       string
	selectors []*selector
	refs      int // label sets, prefixes and classes
	classes   map[*class]struct{}
}

func setKey(selectors []*selector) string {
	key := make([]byte, 0, 4*len(selectors))
	for _, s := range selectors {
		key = binary.BigEndian.AppendUint32(key, s.id)
	}
	return string(key)
}

// intern returns the set of the selectors, with one more reference. It keeps the slice.
func (e *Engine) intern(selectors []*selector) *selectorSet {
	key := setKey(selectors)
	s := e.selectorSets[key]
	if s == nil {
		s = &selectorSet{key: key, selectors: selectors, classes: map[*class]struct{}{}}
		e.selectorSets[key] = s
		e.size.addMembers(len(selectors))
		for _, selector := range selectors {
			selector.sets[s] = struct{}{}
		}
	}
	s.refs++
	return s
}

func (e *Engine) release(s *selectorSet) {
	if s.refs--; s.refs > 0 {
		return
	}
	delete(e.selectorSets, s.key)
	e.size.addMembers(-len(s.selectors))
	for _, selector := range s.selectors {
		delete(selector.sets, s)
	}
}

// covers reports whether what it selects may be addresses of a kind.
func (s *selector) covers(kind model.EndpointKind) bool {
	outsideOnly := isDomain(s.peer) || s.peer.Block != nil && s.peer.Block.OutsideOnly
	return !outsideOnly || kind == model.World
}

// peerKey is equal for peers that select the same by the same requirements.
func peerKey(p model.Peer) string {
	switch {
	case p.Pods != nil:
		return "pods " + strconv.Quote(p.Pods.Namespace) + " " + selectorKey(p.Pods.Namespaces) + " " + selectorKey(p.Pods.Labels)
	case p.Nodes != nil:
		return "nodes " + selectorKey(*p.Nodes)
	case isDomain(p):
		return domainKey(p.Domain)
	}
	key := strconv.AppendBool([]byte("block "), p.Block.OutsideOnly)
	key = p.Block.CIDR.AppendTo(append(key, ' '))
	for _, except := range p.Block.Except {
		key = except.AppendTo(append(key, ' '))
	}
	return string(key)
}

func selectorKey(s model.Selector) string {
	parts := make([]string, 0, len(s))
	for _, r := range s {
		parts = append(parts, strconv.Quote(r.Key)+r.Operator.String()+strings.Join(quoted(r.Values), ","))
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ";") + "}"
}

func quoted(values []string) []string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = strconv.Quote(v)
	}
	slices.Sort(out)
	return out
}

// matches reports whether labels meet all requirements.
func matches(s model.Selector, labels map[string]string) bool {
	for _, r := range s {
		value, has := labels[r.Key]
		var met bool
		switch r.Operator {
		case model.In:
			met = has && slices.Contains(r.Values, value)
		case model.NotIn:
			met = !has || !slices.Contains(r.Values, value)
		case model.Exists:
			met = has
		case model.DoesNotExist:
			met = !has
		}
		if !met {
			return false
		}
	}
	return true
}

func (tx *transaction) updateSelectors() {
	e := tx.e
	if tx.deadSelector {
		for key, sel := range e.selectors {
			if sel.refs > 0 {
				continue
			}
			delete(e.selectors, key)
			tx.changeDomain(sel, nil, slices.Collect(maps.Keys(sel.addresses)))
			if sel.peer.Block != nil && !slices.Contains(tx.newSelectors, sel) {
				e.removeBlock(tx, sel)
			}
		}
	}
	for _, sel := range tx.newSelectors {
		if sel.refs > 0 && sel.peer.Block != nil {
			e.addBlock(tx, sel)
		}
	}
	if tx.deadSelector || len(tx.newSelectors) > 0 {
		tx.updateLabelSets()
	}
	tx.updateBlocks()
}

func (tx *transaction) acquire(peer model.Peer) *selector {
	e := tx.e
	key := peerKey(peer)
	sel := e.selectors[key]
	if sel == nil {
		e.lastSelector++
		sel = &selector{id: e.lastSelector, key: key, peer: peer, sets: map[*selectorSet]struct{}{}, tables: map[*table]struct{}{}}
		e.selectors[key] = sel
		tx.newSelectors = append(tx.newSelectors, sel)
	}
	sel.refs++
	return sel
}
