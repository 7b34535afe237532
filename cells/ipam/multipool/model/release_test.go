package model

// useBlock: the agent gives out an address, or the last pod ends.
func (x *explorer) useBlock(s *state, i int) {
	n := &s.nodes[i]
	if n.life != up {
		return
	}
	for b := range x.blocks() {
		t := *s
		if has(n.inUse, b) {
			t.nodes[i].inUse &^= 1 << b
			x.add(&t, i, podEnds, n.memory[b])
		} else if n.memory[b] != noClaim && n.check == checked && !n.leaving {
			t.nodes[i].inUse |= 1 << b
			x.add(&t, i, "gives out an address", n.memory[b])
		}
	}
}

// giveBack: the agent gives an unused block back.
func (x *explorer) giveBack(s *state, i int) {
	n := &s.nodes[i]
	if n.life != up || n.check != checked || n.leaving || x.keptAway(s, i) {
		return
	}
	for b := range x.blocks() {
		c := n.memory[b]
		if c == noClaim || has(n.inUse, b) || x.holdsDeletes(s, i) {
			continue
		}
		t := *s
		t.nodes[i].memory[b] = noClaim
		if x.rules.releaseOnDiskFirst {
			t.nodes[i].disk[b] = noClaim
		}
		t.deletes |= c.bit()
		x.add(&t, i, "gives the block back, sends a delete", c)
	}
}

// writeCheckpoint happens only without the rules that write it first.
func (x *explorer) writeCheckpoint(s *state, i int) {
	t := *s
	n := &t.nodes[i]
	if n.life == up && n.disk != n.memory && !(x.rules.releaseOnDiskFirst && x.rules.claimOnDiskFirst) {
		n.disk = n.memory
		x.add(&t, i, "writes its checkpoint", noClaim)
	}
}

// executeDelete: the store executes a delete.
func (x *explorer) executeDelete(s *state, c claim) {
	if s.deletes&c.bit() == 0 {
		return
	}
	t := *s
	t.deletes &^= c.bit()
	x.add(&t, nobody, "the network loses the delete", c)

	r := &t.store.blocks[s.blockOf(c)]
	if *r == noClaim || !x.meets(&t, *r, c) {
		return // as if it was lost
	}
	*r = noClaim
	x.add(&t, nobody, "the store executes the delete", c)
	if x.bounds.copies {
		t.deletes |= c.bit()
		x.add(&t, nobody, "the store executes the delete; a copy of it is still under way", c)
	}
}

// meets reports whether the record meets the precondition of the delete.
func (x *explorer) meets(s *state, record, deleted claim) bool {
	sameRevision := s.lost&deleted.bit() != 0 && s.again&record.bit() != 0
	return x.same(record, deleted) || !x.rules.deleteByClaim || (!x.rules.noRevision && sameRevision)
}

// noteRevision notes which records can have the same revision: one from before the restore that it lost, and one from
// after it.
func (x *explorer) noteRevision(t *state, c claim) {
	if x.rules.noRevision {
		return
	}
	if t.restored {
		t.again |= c.bit()
	} else if t.backedUp {
		t.lost |= c.bit()
	}
}

// deleteOrphans: a node finds a block whose owner has no record. Before it deletes it reads the cluster record and the
// store's position.
func (x *explorer) deleteOrphans(s *state, i int) {
	n := &s.nodes[i]
	if !x.bounds.orphans || n.life != up || n.check != checked || n.leaving || x.keptAway(s, i) {
		return
	}
	missing := ^s.store.nodes
	if !x.rules.blocksBeforeNodes {
		t := *s
		t.nodes[i].missing = missing & (1<<x.bounds.nodes - 1)
		x.add(&t, i, "lists the node records", noClaim)
		missing = n.missing
	}
	if x.rules.holdDeletes && (x.recovering(s, i) || x.anotherStore(s, i)) {
		return
	}
	for _, c := range s.store.blocks {
		if c == noClaim || !has(missing, c.node()) || s.deletes&c.bit() != 0 {
			continue
		}
		t := *s
		t.deletes |= c.bit()
		x.add(&t, i, "finds a block whose owner has no record, sends a delete", c)
	}
}
