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
		case has(s.store.agreed, nodeA):
			t.removal = removalAgreed
			x.add(&t, nodeA, "the administrator goes on with node delete", noClaim)
		case n.life == machineOff:
			t.removal = removalBegun
			x.add(&t, nodeA, "the administrator begins node delete with --machine-is-off", noClaim)
		case n.life == up || n.life == agentDown:
			t.removal = removalAsked
			t.store.releasing |= 1 << nodeA
			x.add(&t, nodeA, "the administrator begins node delete, the record is marked", noClaim)
		}
	case removalBegun:
		t.removal = removalAgreed
		t.store.releasing |= 1 << nodeA
		t.store.agreed |= 1 << nodeA
		x.add(&t, nodeA, "node delete marks the record", noClaim)
	case removalAsked:
		if x.bounds.silence && n.life == agentDown {
			t.removal = removalAgreed
			x.add(&t, nodeA, "node delete hears no veto and goes on", noClaim)
		}
	case removalAgreed:
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
		if s.deletes&c.bit() == 0 && !(x.rules.holdDeletes && s.store.recovery == recoveryBegun) {
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
	t.store.agreed &^= 1 << nodeA
	x.add(&t, nodeA, "node delete deletes the node's record", noClaim)
}

// leaves reports whether the agent finds that its node is being deleted. If it is asked, and has blocks, it vetoes.
func (x *explorer) leaves(t *state, i int) bool {
	n := &t.nodes[i]
	switch {
	case has(t.store.agreed, i):
		if !n.leaving {
			n.leaving = true
			x.add(t, i, "finds that its node is being deleted, and stops", noClaim)
		}
		return true
	case !has(t.store.releasing, i):
		return false
	}
	idle := n.inUse == 0 && n.memory == [maxBlocks]claim{}
	if idle || !x.rules.veto {
		n.leaving = true
		t.store.agreed |= 1 << i
		if t.removal == removalAsked {
			t.removal = removalAgreed
		}
		x.add(t, i, "finds that its node is to be deleted, and agrees", noClaim)
		return true
	}
	t.store.releasing &^= 1 << i // the veto; the agent goes on as before
	if t.removal == removalAsked {
		t.removal = removalNone
	}
	return false
}
