package engine

import (
	"encoding/binary"
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

// selectors are the selectors of all rules, and the sets that label sets, prefixes and classes match.
type selectors struct {
	byKey map[string]*selector
	sets  map[string]*selectorSet
	none  *selectorSet // the empty set
	last  uint32
	size  *size

	added  []*selector // since takeChanges
	unused bool        // since takeChanges a selector has lost its last rule
}

func newSelectors(size *size) *selectors {
	s := &selectors{byKey: map[string]*selector{}, sets: map[string]*selectorSet{}, size: size}
	s.none = s.intern(nil)
	// Every pod matches this one from its beginning, so that a rule for all pods changes no class.
	s.acquire(model.Peer{Pods: &model.Pods{}})
	s.added = nil
	return s
}

// acquire returns the peer's selector, with one more reference.
func (s *selectors) acquire(peer model.Peer) *selector {
	key := peerKey(peer)
	sel := s.byKey[key]
	if sel == nil {
		s.last++
		sel = &selector{id: s.last, key: key, peer: peer, sets: map[*selectorSet]struct{}{}, tables: map[*table]struct{}{}}
		s.byKey[key] = sel
		s.added = append(s.added, sel)
	}
	sel.refs++
	return sel
}

func (s *selectors) release(sel *selector) {
	sel.refs--
	s.unused = s.unused || sel.refs == 0
}

// takeChanges deletes selectors without a rule. It returns the new and the deleted selectors since the last call.
func (s *selectors) takeChanges() (added, removed []*selector) {
	isUnused := func(sel *selector) bool { return sel.refs == 0 }
	if s.unused {
		for key, sel := range s.byKey {
			if !isUnused(sel) {
				continue
			}
			delete(s.byKey, key)
			if len(s.added) == 0 || sel.id < s.added[0].id {
				removed = append(removed, sel)
			}
		}
	}
	added = slices.DeleteFunc(s.added, isUnused)
	s.added, s.unused = nil, false
	return added, removed
}

// intern returns the set of the selectors, with one more reference. It keeps the slice.
func (s *selectors) intern(list []*selector) *selectorSet {
	key := make([]byte, 0, 4*len(list))
	for _, sel := range list {
		key = binary.BigEndian.AppendUint32(key, sel.id)
	}
	set := s.sets[string(key)]
	if set == nil {
		set = &selectorSet{key: string(key), selectors: list, classes: map[*class]struct{}{}}
		s.sets[set.key] = set
		s.size.addMembers(len(list))
		for _, sel := range list {
			sel.sets[set] = struct{}{}
		}
	}
	set.refs++
	return set
}

func (s *selectors) releaseSet(set *selectorSet) {
	if set.refs--; set.refs > 0 {
		return
	}
	delete(s.sets, set.key)
	s.size.addMembers(-len(set.selectors))
	for _, sel := range set.selectors {
		delete(sel.sets, set)
	}
}

func byID(a, b *selector) int { return int(int64(a.id) - int64(b.id)) }

// covers reports whether what it selects may be addresses of a kind.
func (s *selector) covers(kind model.EndpointKind) bool {
	outsideOnly := isDomain(s.peer) || s.peer.Block != nil && s.peer.Block.OutsideOnly
	return !outsideOnly || kind == model.World
}

func isDomain(p model.Peer) bool { return p.Domain != model.DNSRule{} }

func domainKey(r model.DNSRule) string { return "domain " + r.Name + " " + r.Pattern }

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
		values := make([]string, len(r.Values))
		for i, v := range r.Values {
			values[i] = strconv.Quote(v)
		}
		slices.Sort(values)
		parts = append(parts, strconv.Quote(r.Key)+r.Operator.String()+strings.Join(values, ","))
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ";") + "}"
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
