package engine

import (
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

// classes are all classes.
type classes struct {
	byKey     map[classKey]*class
	byKind    [model.Pod]map[*class]struct{} // of each kind but pods
	withPorts map[*class]struct{}            // with named ports
	last      ClassID
	selectors *selectors
	names     *portNames
}

func newClasses(selectors *selectors, names *portNames) *classes {
	x := &classes{byKey: map[classKey]*class{}, withPorts: map[*class]struct{}{}, last: FixedClass(model.Pod), selectors: selectors, names: names}
	for kind := model.World; kind < model.Pod; kind++ {
		x.byKind[kind] = map[*class]struct{}{}
		c := &class{id: FixedClass(kind), members: 1} // itself, so that it stays
		x.enter(c, classKey{kind: kind, labels: selectors.none, blocks: selectors.none}, nil)
	}
	return x
}

// update gives all marked members their class. A class whose members all leave becomes the class that one of them
// needs, if there is none yet, and so keeps its number. It stays of its kind, which a datapath may have noted with the
// addresses. It returns the classes that have another key, are empty, or are new, with the key before: the zero key for
// a new class.
func (x *classes) update(a *addresses) map[*class]classKey {
	type move struct {
		place
		member
		key classKey
	}
	changes := map[*class]classKey{}
	leaving := map[*class]int{}
	var moves []move
	for _, p := range a.marked {
		m, key, ok := a.keyOf(p)
		if ok && (m.class == nil || m.class.key != key) {
			moves = append(moves, move{p, m, key})
			if m.class != nil {
				leaving[m.class]++
			}
		}
	}
	for _, m := range moves {
		if c := m.class; c != nil && leaving[c] == c.members && c.key.kind == m.key.kind && x.byKey[m.key] == nil {
			leaving[c] = -1 // has its new key
			changes[c] = c.key
			m.key.labels.refs++ // it may be the old key's last one
			m.key.blocks.refs++
			x.leave(c)
			x.enter(c, m.key, m.owner)
			x.selectors.releaseSet(m.key.labels)
			x.selectors.releaseSet(m.key.blocks)
		}
	}
	for _, m := range moves {
		if m.class != nil && m.class.key == m.key {
			continue
		}
		a.removeMember(m.place, m.member)
		c := x.byKey[m.key]
		if c == nil {
			x.last++
			c = &class{id: x.last}
			changes[c] = classKey{}
			x.enter(c, m.key, m.owner)
		}
		c.members++
		if !m.isRange {
			a.table.Insert(m.cidr, member{m.owner, c})
		} else if r, ok := a.ranges.Get(m.cidr); ok {
			r.class = c
		}
	}
	for _, c := range a.before {
		if c != nil && c.members == 0 && x.byKey[c.key] == c {
			changes[c] = c.key
			x.leave(c)
		}
	}
	return changes
}

// enter lists a class under its key, with references of its own to the sets. The owner is an endpoint of the class, nil
// for ranges.
func (x *classes) enter(c *class, key classKey, owner *endpoint) {
	c.key, c.ports = key, nil
	if owner != nil {
		c.ports = x.names.asked(owner.ports)
	}
	x.byKey[key] = c
	key.labels.refs++
	key.blocks.refs++
	key.labels.classes[c] = struct{}{}
	key.blocks.classes[c] = struct{}{}
	if key.kind != model.Pod {
		x.byKind[key.kind][c] = struct{}{}
	}
	if key.ports != "" {
		x.withPorts[c] = struct{}{}
	}
}

// leave removes a class from the list of its key.
func (x *classes) leave(c *class) {
	delete(x.byKey, c.key)
	if c.key.kind != model.Pod {
		delete(x.byKind[c.key.kind], c)
	}
	delete(x.withPorts, c)
	for _, s := range []*selectorSet{c.key.labels, c.key.blocks} {
		delete(s.classes, c)
		x.selectors.releaseSet(s)
	}
}
