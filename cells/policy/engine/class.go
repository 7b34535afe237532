package engine

import (
	"net/netip"
	"slices"

	"porin.dev/porin/cells/policy/model"
)

// ClassID is the number of a class.
type ClassID uint32

// FixedClass returns the class of a kind's addresses that no rule tells apart. Pods have none.
func FixedClass(kind model.EndpointKind) ClassID { return ClassID(kind) + 1 }

type class struct {
	id      ClassID
	key     classKey
	ports   []model.NamedPort // of key.ports
	members int
}

type classKey struct {
	kind           model.EndpointKind
	labels, blocks *selectorSet
	ports          string
}

// uses returns the selectors that the class matches.
func (k classKey) uses() []*selector { return slices.Concat(k.labels.selectors, k.blocks.selectors) }

// member is an address of an endpoint, or a range of addresses without endpoints. There may be a million, so it is small.
type member struct {
	owner *endpoint // nil for a range
	class *class
}

// idOf returns the class's number, or 0 for nil.
func idOf(c *class) ClassID {
	if c == nil {
		return 0
	}
	return c.id
}

// place is where a member is: the table of addresses, or the table of ranges.
type place struct {
	cidr    netip.Prefix
	isRange bool
}

func (e *Engine) memberAt(p place) (m member, ok bool) {
	if !p.isRange {
		return e.addresses.Get(p.cidr)
	}
	r, ok := e.prefixes.Get(p.cidr)
	if !ok {
		return m, false
	}
	return r.member, true
}

func (e *Engine) setMember(p place, m member) {
	if !p.isRange {
		e.addresses.Insert(p.cidr, m)
	} else if r, ok := e.prefixes.Get(p.cidr); ok {
		r.member = m
	}
}

func (e *Engine) keyOf(p place, m member) classKey {
	if p.isRange {
		r, _ := e.prefixes.Get(p.cidr)
		return classKey{kind: e.kindAt(p.cidr), labels: e.noSelectors, blocks: r.blocks}
	}
	return classKey{kind: m.owner.Kind, labels: m.owner.selectors, blocks: e.blocksAt(p.cidr.Addr()), ports: m.owner.askedPorts}
}

// classChange is what becomes of a class in an update.
type classChange struct {
	old  classKey
	made bool
}

// dirty marks the member there for another look, if it is still there then.
func (tx *transaction) dirty(p place) {
	if _, again := tx.dirtyPlaces[p]; !again {
		tx.dirtyPlaces[p] = struct{}{}
		tx.places = append(tx.places, p)
	}
}

// quit takes a member out of its class, and notes that. The caller gives it another one, or has removed it.
func (tx *transaction) quit(p place, m member) {
	tx.moved(p, m)
	if c := m.class; c != nil {
		c.members--
		if c.members == 0 {
			tx.emptied = append(tx.emptied, c)
		}
	}
}

// move moves a member to the class with the key.
type move struct {
	place
	member
	key classKey
}

// reclassify gives all dirty members their class. A class whose members all leave becomes the class that one of them needs, if
// there is none yet, and so keeps its number. It stays of its kind, which a datapath may have noted with the addresses.
func (tx *transaction) reclassify() {
	e := tx.e
	leaving := map[*class]int{}
	var moves []move
	for _, p := range tx.places {
		m, ok := e.memberAt(p)
		if !ok {
			continue // removed
		}
		key := e.keyOf(p, m)
		if m.class == nil || m.class.key != key {
			moves = append(moves, move{p, m, key})
			if m.class != nil {
				leaving[m.class]++
			}
		}
	}
	for _, m := range moves {
		if m.class != nil && leaving[m.class] == m.class.members && m.class.key.kind == m.key.kind && e.classes[m.key] == nil {
			leaving[m.class] = -1 // has its new key
			tx.rekey(m.class, m.key, m.owner)
		}
	}
	for _, m := range moves {
		if m.class != nil && m.class.key == m.key {
			continue
		}
		tx.quit(m.place, m.member)
		c := e.classes[m.key]
		if c == nil {
			c = tx.makeClass(m.key, m.owner)
		}
		e.setMember(m.place, member{m.owner, c})
		c.members++
	}
	for _, c := range tx.emptied {
		if c.members == 0 && e.classes[c.key] == c {
			tx.note(c)
			e.leaveKey(c)
		}
	}
}

func (tx *transaction) makeClass(key classKey, owner *endpoint) *class {
	tx.e.lastClass++
	c := &class{id: tx.e.lastClass}
	tx.classes[c] = classChange{made: true}
	tx.e.enter(c, key)
	c.ports = tx.e.portsOf(owner)
	return c
}

func (tx *transaction) rekey(c *class, key classKey, owner *endpoint) {
	tx.note(c)
	key.labels.refs++ // it may be the old key's last one
	key.blocks.refs++
	tx.e.leaveKey(c)
	tx.e.enter(c, key)
	tx.e.release(key.labels)
	tx.e.release(key.blocks)
	c.ports = tx.e.portsOf(owner)
}

// note keeps the first key that a class had in this update.
func (tx *transaction) note(c *class) {
	if _, ok := tx.classes[c]; !ok {
		tx.classes[c] = classChange{old: c.key}
	}
}

// enter lists a class under its key. It needs references of its own to the sets.
func (e *Engine) enter(c *class, key classKey) {
	c.key = key
	e.classes[key] = c
	key.labels.refs++
	key.blocks.refs++
	key.labels.classes[c] = struct{}{}
	key.blocks.classes[c] = struct{}{}
	if key.kind != model.Pod {
		e.kindClasses[key.kind][c] = struct{}{}
	}
	if key.ports != "" {
		e.portClasses[c] = struct{}{}
	}
}

// leaveKey takes a class off the list of its key.
func (e *Engine) leaveKey(c *class) {
	delete(e.classes, c.key)
	if c.key.kind != model.Pod {
		delete(e.kindClasses[c.key.kind], c)
	}
	delete(e.portClasses, c)
	for _, s := range []*selectorSet{c.key.labels, c.key.blocks} {
		delete(s.classes, c)
		e.release(s)
	}
}
