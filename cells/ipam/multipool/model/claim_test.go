package model

// claimBlock: a node creates the record of a block. Its copy of the pool may be old.
func (x *explorer) claimBlock(s *state, i int) {
	n := &s.nodes[i]
	if n.life != up || n.check != checked || n.leaving || n.waits || n.pending != noClaim || x.keptAway(s, i) {
		return
	}
	for b := range x.blocks() {
		if n.memory[b] != noClaim || has(n.inUse, b) || (b == secondBlock && s.store.pool != newPoolAccepted) {
			continue
		}
		t := *s
		if c := x.sendCreate(&t, i, b); c != noClaim {
			x.add(&t, i, "sends a create", c)
		}
	}
}

// createAgain sends the create of a claim that the checkpoint has and the store has not.
func (x *explorer) createAgain(t *state, i int, c claim) {
	t.creates |= c.bit()
	t.nodes[i].pending, t.nodes[i].stage = c, waitsForAnswer
}

// sendCreate returns noClaim if the node has as many claims under way as the bounds allow.
func (x *explorer) sendCreate(t *state, i, block int) claim {
	existing := t.referenced()
	for k := range x.bounds.claims {
		c := claim(i*claimsOfNode + k + 1)
		if existing&c.bit() != 0 {
			continue
		}
		t.creates |= c.bit()
		if block == secondBlock {
			t.second |= c.bit()
		}
		t.nodes[i].pending, t.nodes[i].stage = c, waitsForAnswer
		return c
	}
	return noClaim
}

// executeCreate: the store executes a create; the sender, if it still waits, has the answer.
func (x *explorer) executeCreate(s *state, c claim) {
	if s.creates&c.bit() == 0 {
		return
	}
	t := *s
	t.creates &^= c.bit()
	x.add(&t, nobody, "the network loses the create", c)

	t = *s
	i, b := c.node(), s.blockOf(c)
	n := &t.nodes[i]
	waits := n.pending == c && n.stage == waitsForAnswer
	made := t.store.blocks[b] == noClaim
	t.creates &^= c.bit()
	what := "the store executes the create, nobody waits for the answer"
	switch {
	case made:
		t.store.blocks[b] = c
		x.noteRevision(&t, c)
		if waits {
			what = "the store executes the create, the node has the answer"
			if n.disk[b] == c { // created again: nothing to verify
				n.memory[b], n.pending, n.stage = c, noClaim, idle
			} else {
				x.nextStage(&t, i)
			}
		}
	case waits:
		what = "the store refuses the create, the block is taken"
		n.pending, n.stage = noClaim, idle
		if n.disk[b] == c {
			n.disk[b] = noClaim // a conflict if it is used
		}
		if r := t.store.blocks[b]; !x.rules.createMakesOwner && x.own(i, r) {
			n.memory[b], n.disk[b] = r, r
		}
	default:
		what = "the store refuses the create, nobody waits for the answer"
	}
	x.add(&t, nobody, what, c)
	if x.bounds.createCopies && made {
		t.creates |= c.bit()
		x.add(&t, nobody, what+"; a copy of it is still under way", c)
	}
}

// nextStage goes to the next read after a create, or makes the node the owner.
func (x *explorer) nextStage(t *state, i int) {
	n := &t.nodes[i]
	needed := [...]bool{
		readsPool:          x.rules.readPool && x.bounds.pools,
		readsNodeRecord:    x.rules.readNodeRecord && x.bounds.removals > 0 && i == nodeA,
		readsClusterRecord: x.rules.readClusterRecord && x.bounds.restore,
	}
	for n.stage++; n.stage <= readsClusterRecord; n.stage++ {
		if needed[n.stage] {
			return
		}
	}
	b := t.blockOf(n.pending)
	n.memory[b] = n.pending
	if x.rules.claimOnDiskFirst {
		n.disk[b] = n.pending
	}
	n.pending, n.stage = noClaim, idle
}

// verifyClaim: one of the reads after a create, or the end of waiting for an answer.
func (x *explorer) verifyClaim(s *state, i int) {
	t := *s
	n := &t.nodes[i]
	c := n.pending
	if n.life != up || c == noClaim || x.keptAway(s, i) {
		return
	}
	b := t.blockOf(c)
	switch n.stage {
	case waitsForAnswer:
		n.pending, n.stage = noClaim, idle
		x.add(&t, i, "does not wait any longer for the answer to its create", c)
	case readsPool:
		x.conclude(&t, i, t.poolAccepted(b), "reads the pool")
	case readsNodeRecord:
		x.conclude(&t, i, has(t.store.nodes, i) && !has(t.store.releasing, i), "reads its own node record")
	case readsClusterRecord:
		another := x.anotherStore(&t, i)
		if x.rolledBack(&t, i) {
			x.notice(&t, i)
		}
		x.conclude(&t, i, !another && !x.recovering(&t, i), "reads the cluster record and the store's position")
	}
}

// conclude ends one read. A block whose addresses are in use is kept: it was created again, not claimed.
func (x *explorer) conclude(t *state, i int, good bool, what string) {
	n := &t.nodes[i]
	c := n.pending
	if good || has(n.inUse, t.blockOf(c)) {
		x.nextStage(t, i)
		x.add(t, i, what+" and goes on", c)
		return
	}
	n.pending, n.stage = noClaim, idle
	t.deletes |= c.bit()
	x.add(t, i, what+" and withdraws, sends a delete", c)
}

// own reports whether the record with the claim carries this node as its owner.
func (x *explorer) own(i int, c claim) bool {
	if c == noClaim {
		return false
	}
	owner := c.node()
	return owner == i || (!x.rules.incarnations && x.bounds.replaced && owner != nodeB && i != nodeB)
}

// same reports whether two claims have the same ID.
func (x *explorer) same(a, b claim) bool {
	if a == noClaim || b == noClaim || x.rules.randomClaims {
		return a == b
	}
	return a.node() == b.node()
}
