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

// member is an address of an endpoint, or a range of addresses that nobody has.
type member struct {
	prefix netip.Prefix // of one address, if there is an owner
	owner  *endpoint
	blocks *selectorSet // without an owner
	class  *class
	dirty  bool
}

func (e *Engine) keyOf(m *member) classKey {
	if m.owner == nil {
		return classKey{kind: model.World, labels: e.noSelectors, blocks: m.blocks}
	}
	return classKey{kind: m.owner.Kind, labels: m.owner.labelSet.selectors, blocks: e.blocksAt(m.prefix.Addr()), ports: m.owner.portsKey}
}

// classChange is what becomes of a class in an update.
type classChange struct {
	old  classKey
	made bool
}

func (tx *transaction) dirty(m *member) {
	if !m.dirty {
		m.dirty = true
		tx.members = append(tx.members, m)
	}
}

// remove takes a member out of its class for good. It may be dirty.
func (tx *transaction) remove(m *member) {
	tx.moved(m)
	m.prefix, m.owner = netip.Prefix{}, nil
	tx.quit(m)
}

func (tx *transaction) quit(m *member) {
	if c := m.class; c != nil {
		m.class = nil
		c.members--
		if c.members == 0 {
			tx.emptied = append(tx.emptied, c)
		}
	}
}

// reclassify gives all dirty members their class. A class whose members all leave becomes the class that one of them needs, if
// there is none yet, and so keeps its number. It stays of its kind, which a datapath may have noted with the addresses.
func (tx *transaction) reclassify() {
	e := tx.e
	leaving := map[*class]int{}
	var moves []*member
	var keys []classKey
	for _, m := range tx.members {
		m.dirty = false
		if !m.prefix.IsValid() {
			continue // removed
		}
		key := e.keyOf(m)
		if m.class == nil || m.class.key != key {
			moves, keys = append(moves, m), append(keys, key)
			if m.class != nil {
				leaving[m.class]++
			}
		}
	}
	for i, m := range moves {
		if m.class != nil && leaving[m.class] == m.class.members && m.class.key.kind == keys[i].kind && e.classes[keys[i]] == nil {
			leaving[m.class] = -1 // has its new key
			tx.rekey(m.class, keys[i], m.owner)
		}
	}
	for i, m := range moves {
		if m.class != nil && m.class.key == keys[i] {
			continue
		}
		tx.quit(m)
		c := e.classes[keys[i]]
		if c == nil {
			c = tx.makeClass(keys[i], m.owner)
		}
		m.class = c
		c.members++
		tx.moved(m)
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
	if key.kind == model.Host {
		e.hostClasses[c] = struct{}{}
	}
	if key.ports != "" {
		e.portClasses[c] = struct{}{}
	}
}

// leaveKey takes a class off the list of its key.
func (e *Engine) leaveKey(c *class) {
	delete(e.classes, c.key)
	delete(e.hostClasses, c)
	delete(e.portClasses, c)
	for _, s := range []*selectorSet{c.key.labels, c.key.blocks} {
		delete(s.classes, c)
		e.release(s)
	}
}

// Classes returns how many classes there are, those with a fixed number included.
func (e *Engine) Classes() int { return len(e.classes) }
