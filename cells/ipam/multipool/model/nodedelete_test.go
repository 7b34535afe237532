package model

// deleteNode: `porin node delete A`, or another one after it that goes on.
func (x *explorer) deleteNode(s *state) {
	t := *s
	n := &s.nodes[nodeA]
	switch s.removal {
	case removalNone:
		if s.spent.removals == x.bounds.removals || !has(s.store.nodes, nodeA) {
			return
		}
		t.spent.removals++
		switch {
		case has(s.store.releasing, nodeA):
			t.removal = removalMarked
			x.add(&t, nodeA, "the administrator goes on with node delete", noClaim)
		case n.life == machineOff:
			t.removal = removalBegun
			x.add(&t, nodeA, "the administrator begins node delete with --machine-is-off", noClaim)
		}
	case removalBegun:
		t.removal = removalMarked
		t.store.releasing |= 1 << nodeA
		x.add(&t, nodeA, "node delete marks the record", noClaim)
	case removalMarked:
		x.deleteBlocksOfNode(s)
	case removalEmpty:
		x.deleteNodeRecord(s)
	}
}

func (x *explorer) deleteBlocksOfNode(s *state) {
	empty := true
	for _, c := range s.store.blocks {
		if c == noClaim || c.node() != nodeA {
			continue
		}
		empty = false
		if s.deletes&c.bit() == 0 {
			t := *s
			t.deletes |= c.bit()
			x.add(&t, nodeA, "node delete sends a delete", c)
		}
	}
	if empty {
		t := *s
		t.removal = removalEmpty
		x.add(&t, nodeA, "node delete finds no block any more", noClaim)
	}
	if !x.rules.recordLast {
		x.deleteNodeRecord(s)
	}
}

func (x *explorer) deleteNodeRecord(s *state) {
	t := *s
	t.removal = removalNone
	t.store.nodes &^= 1 << nodeA
	t.store.releasing &^= 1 << nodeA
	x.add(&t, nodeA, "node delete deletes the node's record", noClaim)
}

// leaves reports whether the agent finds that its node is being deleted.
func (x *explorer) leaves(t *state, i int) bool {
	n := &t.nodes[i]
	if !has(t.store.releasing, i) {
		return false
	}
	if !n.leaving {
		n.leaving = true
		x.add(t, i, "finds that its node is being deleted, and stops", noClaim)
	}
	return true
}
