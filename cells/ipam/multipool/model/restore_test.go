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
	t.restored, t.store, t.backup = true, t.backup, store{}
	t.removal = removalNone // the command ends with an error: the position is not what it was
	what := "the store is restored from the backup"
	if !x.bounds.lateRequests {
		t.creates, t.deletes = 0, 0
		for i := range t.nodes {
			if t.nodes[i].stage == waitsForAnswer {
				t.nodes[i].pending, t.nodes[i].stage = noClaim, idle
			}
		}
	}
	t.store.pool = t.store.pool.withoutProgress()
	t.store.named = t.store.nodes
	if x.rules.durableMark && !x.bounds.unmarked {
		t.store.recovery = recoveryBegun
		what += " and the administrator sets the mark"
	}
	x.add(&t, nobody, what, noClaim)
}

// notice: a node finds that the store was rolled back.
func (x *explorer) notice(t *state, i int) {
	n := &t.nodes[i]
	n.check = max(n.check, checkDue)
	if !x.rules.durableMark {
		n.waits, n.seen = true, t.position()
		return
	}
	if t.store.recovery == recoveryNever {
		t.store.recovery, t.store.named, t.store.confirmed = recoveryBegun, t.store.nodes, 0
	}
}

// recovering reports whether the node, when it reads the cluster record, finds the store in recovery.
func (x *explorer) recovering(s *state, i int) bool {
	if !x.rules.durableMark {
		return s.nodes[i].waits
	}
	return s.store.recovery == recoveryBegun
}

// holdsDeletes reports whether the node holds its deletes back. A node that has not read the restored store does not.
func (x *explorer) holdsDeletes(s *state, i int) bool {
	return x.rules.holdDeletes && s.nodes[i].seen == s.position() && x.recovering(s, i)
}

// endRecovery: everybody has confirmed. The administrator excludes machines that are off.
func (x *explorer) endRecovery(s *state) {
	if !s.restored {
		return
	}
	named := s.store.named
	if x.rules.waitForAll {
		named |= s.ever
	}
	done := s.store.confirmed&named == named || !x.rules.noTimeLimit
	if !x.rules.durableMark {
		for i := range s.nodes {
			if s.nodes[i].waits && done {
				t := *s
				t.nodes[i].waits = false
				x.add(&t, i, "finds that all nodes have confirmed", noClaim)
			}
		}
		return
	}
	if s.store.recovery != recoveryBegun {
		return
	}
	for i := range s.nodes {
		if has(named&^s.store.confirmed, i) && (s.nodes[i].life == machineOff || x.bounds.excludeAny) {
			t := *s
			t.store.confirmed |= 1 << i
			x.add(&t, i, "the administrator excludes it from the recovery", noClaim)
		}
	}
	if done {
		t := *s
		t.store.recovery, t.store.confirmed, t.store.named, t.ever = recoveryEnded, 0, 0, 0
		for i := range t.nodes {
			t.nodes[i].knows = 0
		}
		x.add(&t, nobody, "the recovery ends", noClaim)
	}
}
