package model

// backupAndRestore: once each.
func (x *explorer) backupAndRestore(s *state) {
	if !x.bounds.restore || s.restored {
		return
	}
	t := *s
	if !s.backedUp {
		t.backedUp, t.backup = true, t.store
		x.add(&t, nobody, "the store is backed up", noClaim)
		return
	}
	if x.rules.durableMark && !x.bounds.unmarked {
		if !s.announced {
			t.announced, t.store.recovery, t.store.written = true, recoveryBegun, 0
			t.removal = removalNone // the command ends with an error: a recovery has begun
			x.add(&t, nobody, "the administrator begins a recovery", noClaim)
			return
		}
		for _, n := range s.nodes {
			if (n.life == up || n.life == agentDown) && n.recovery == recoveryNever {
				return // the administrator waits until every node knows
			}
		}
	}
	t.restored, t.store, t.backup = true, t.backup, store{}
	t.removal = removalNone // the command ends with an error: the position is not what it was
	if !x.bounds.lateRequests {
		t.creates, t.deletes = 0, 0
		for i := range t.nodes {
			if t.nodes[i].stage == waitsForAnswer {
				t.nodes[i].pending, t.nodes[i].stage = noClaim, idle
			}
		}
	}
	t.store.pool = t.store.pool.withoutProgress()
	x.add(&t, nobody, "the store is restored from the backup", noClaim)
}

// keptAway reports whether the administrator keeps the node away from a restored store: a node that did not run when
// the recovery was announced waits until another one has set the mark again.
func (x *explorer) keptAway(s *state, i int) bool {
	return s.announced && s.restored && s.store.recovery == recoveryNever && s.nodes[i].recovery == recoveryNever
}

// rolledBack reports whether the node, when it reads the cluster record and the position, finds that the store was
// rolled back: the position is behind what it has seen, or the recovery that it has seen is gone.
func (x *explorer) rolledBack(s *state, i int) bool {
	n := &s.nodes[i]
	behind := n.seen == seenBeforeRestore && s.restored && !x.bounds.bumped
	return behind || x.rules.durableMark && n.recovery > s.store.recovery
}

// anotherStore reports whether the cluster record or the position is another one than the node has read before.
func (x *explorer) anotherStore(s *state, i int) bool {
	n := &s.nodes[i]
	return n.seen != s.position() && !x.bounds.bumped || x.rules.durableMark && n.recovery != s.store.recovery
}

// notice: a node finds that the store was rolled back.
func (x *explorer) notice(t *state, i int) {
	n := &t.nodes[i]
	n.check = max(n.check, checkDue)
	if !x.rules.durableMark {
		n.waits, n.seen = true, t.position()
		return
	}
	x.noticeLost(t, i)
}

// noticeLost: a node finds that a record of its own is gone.
func (x *explorer) noticeLost(t *state, i int) {
	if !x.rules.durableMark {
		t.nodes[i].waits = true
	} else if t.store.recovery != recoveryBegun {
		t.store.recovery, t.store.written = recoveryBegun, 0
		t.nodes[i].recovery = recoveryBegun
	}
}

// recovering reports whether the node, when it reads the cluster record, finds the store in recovery.
func (x *explorer) recovering(s *state, i int) bool {
	if !x.rules.durableMark {
		return s.nodes[i].waits
	}
	return s.store.recovery == recoveryBegun
}

// holdsDeletes reports whether the node holds its deletes back. A node that does not know of the recovery does not.
func (x *explorer) holdsDeletes(s *state, i int) bool {
	n := &s.nodes[i]
	return x.rules.holdDeletes && (n.recovery == recoveryBegun || n.waits)
}

// endRecovery: the administrator ends the recovery when every node has written its claims, or its machine is off.
func (x *explorer) endRecovery(s *state) {
	named := s.store.nodes
	if x.rules.waitForAll {
		named |= s.ever
	}
	for i, n := range s.nodes {
		if n.life == machineOff || n.life == absent || x.bounds.force {
			named &^= 1 << i
		}
	}
	done := s.store.written&named == named || !x.rules.noTimeLimit
	if !x.rules.durableMark {
		for i := range s.nodes {
			if s.nodes[i].waits && done {
				t := *s
				t.nodes[i].waits = false
				x.add(&t, i, "finds that all nodes have written their claims", noClaim)
			}
		}
		return
	}
	if s.store.recovery == recoveryBegun && s.restored && done {
		t := *s
		t.store.recovery, t.store.written, t.ever = recoveryEnded, 0, 0
		x.add(&t, nobody, "the administrator ends the recovery", noClaim)
	}
}
