package model

// changeLife: agents stop and start, machines go down and boot, a new machine appears.
func (x *explorer) changeLife(s *state, i int) {
	t := *s
	n := &t.nodes[i]
	switch n.life {
	case absent:
		n.life, n.check = up, checkDue
		x.add(&t, i, "a new machine starts", noClaim)
		return
	case machineOff:
		n.life, n.memory = up, n.disk
		if x.rules.compareAfterBoot {
			n.check = checkAfterBoot
		}
		x.add(&t, i, "its machine boots", noClaim)
		return
	case agentDown:
		n.life, n.memory = up, n.disk
		x.add(&t, i, "its agent starts", noClaim)
	case up:
		if t.spent.restarts < x.bounds.restarts {
			t.spent.restarts++
			x.stop(n, agentDown)
			x.add(&t, i, "its agent stops, the pods run on", noClaim)
		}
	}
	if s.spent.reboots < x.bounds.reboots {
		t = *s
		t.spent.reboots++
		x.stop(n, machineOff)
		n.inUse = 0
		x.add(&t, i, machineGoesDown, noClaim)
	}
}

func (x *explorer) stop(n *node, l life) {
	n.life, n.pending, n.stage, n.leaving = l, noClaim, idle, false
	n.memory = [maxBlocks]claim{}
	if !x.rules.positionOnDisk {
		n.seen = seenNothing
	}
}

// compareWithStore: the agent reads its node record, the cluster record and the blocks, and acts on them.
func (x *explorer) compareWithStore(s *state, i int) {
	t := *s
	n := &t.nodes[i]
	if n.life != up || n.pending != noClaim || x.keptAway(s, i) {
		return
	}
	if x.leaves(&t, i) {
		return
	}
	if x.rules.sessionGuards && i == nodeA && t.removal == removalBegun {
		t.removal = removalNone // the session that the command read is not there any more
	}
	rolledBack := x.rolledBack(&t, i)
	if rolledBack {
		x.notice(&t, i)
	}
	missed := t.store.recovery != recoveryNever && n.recovery == recoveryNever
	void := x.rules.restoreVoids && (rolledBack || missed || x.recovering(&t, i)) || x.rules.deletionVoids && !has(t.store.nodes, i)
	if n.check == checkAfterBoot && void {
		n.memory, n.disk = [maxBlocks]claim{}, [maxBlocks]claim{}
	}
	x.register(&t, i)
	settled := true
	for b := range x.blocks() {
		settled = x.reconcileBlock(&t, i, b) && settled
	}
	n.leaving = false
	if lost := n.disk != n.memory; n.check != checkAfterBoot || !lost { // claims that are not there yet keep a boot from its end
		n.check = checked
	}
	if settled {
		t.store.written |= 1 << i
	}
	if t.store.recovery != recoveryBegun && x.rules.durableMark {
		t.store.written = 0
	}
	x.add(&t, i, "compares with the store", noClaim)
}

// register writes the node's record, and what it has read to the checkpoint.
func (x *explorer) register(t *state, i int) {
	n := &t.nodes[i]
	t.store.nodes |= 1 << i
	t.ever |= 1 << i
	n.seen, n.recovery = t.position(), t.store.recovery
	if !x.bounds.restore || t.restored && t.store.recovery == recoveryEnded {
		t.ever = 0 // not asked for any more
	}
}

// reconcileBlock reports whether the node's use of the block and the record agree.
func (x *explorer) reconcileBlock(t *state, i, b int) bool {
	n := &t.nodes[i]
	r := t.store.blocks[b]
	used := has(n.inUse, b)
	onDisk := x.same(r, n.disk[b]) || x.same(r, n.memory[b])
	settled := !used || t.poolAccepted(b) || !x.rules.poolUnsettled
	switch {
	case r == noClaim && n.disk[b] != noClaim && x.rules.createAgain && (used || t.poolAccepted(b)):
		c := n.disk[b]
		n.memory[b] = noClaim
		if x.bounds.restore && x.bounds.removals == 0 {
			x.noticeLost(t, i)
		}
		if n.pending == noClaim {
			x.createAgain(t, i, c)
		}
		return false
	case r == noClaim && used && x.rules.createAgain:
		n.memory[b], n.disk[b] = noClaim, noClaim
		if n.pending == noClaim {
			x.sendCreate(t, i, b)
		}
		return false
	case r == noClaim && used:
		return settled
	case r == noClaim:
		n.memory[b], n.disk[b] = noClaim, noClaim
		return settled
	case x.own(i, r) && !used && x.rules.poolUnsettled && !t.poolAccepted(b):
		n.memory[b], n.disk[b] = noClaim, noClaim
		t.deletes |= r.bit()
		return true
	case x.own(i, r) && (onDisk || (used && n.disk[b] == noClaim && !x.rules.renewInUse) || !x.rules.createMakesOwner):
		n.memory[b], n.disk[b] = r, r
		return settled
	case x.own(i, r): // another node's claim, or one this node does not need
		n.memory[b] = noClaim // the checkpoint's claim is created again when the other is gone
		if x.rules.deleteOwnUnknown || !x.recovering(t, i) {
			t.deletes |= r.bit()
		}
		return !used && n.disk[b] == noClaim
	case used && !x.rules.conflictStops:
		return true
	default:
		n.memory[b], n.disk[b] = noClaim, noClaim
		return !used || !x.rules.conflictUnsettled
	}
}
