package model

// changePool: the administrator deletes the pool and creates it again with another block size.
func (x *explorer) changePool(s *state) {
	if !x.bounds.pools {
		return
	}
	to := func(p poolState, what string) {
		t := *s
		t.store.pool = p
		x.add(&t, nobody, what, noClaim)
	}
	inUse := s.store.blocks[firstBlock] != noClaim
	switch s.store.pool {
	case poolAccepted:
		if x.bounds.poolLost {
			to(poolGone, "the pool's record is removed without a check")
		}
		if !inUse {
			to(poolDeleting, "pool delete finds no block and marks the pool")
		}
	case poolDeleting:
		if inUse {
			to(poolAccepted, "pool delete finds a block and takes the mark away")
		} else {
			to(poolChecked, "pool delete checks again and finds no block")
		}
	case poolChecked:
		to(poolGone, "pool delete deletes the pool")
	case poolGone:
		to(newPoolPending, "the pool is created again with another block size")
	case newPoolPending:
		if !inUse || !x.rules.refuseOverlap {
			to(newPoolListed, "pool acceptance lists the blocks")
		}
	case newPoolListed:
		to(newPoolAccepted, "the new pool is accepted")
	}
}

// withoutProgress forgets what a command that did not survive the restore had found.
func (p poolState) withoutProgress() poolState {
	switch p {
	case poolChecked:
		return poolDeleting
	case newPoolListed:
		return newPoolPending
	}
	return p
}

// poolAccepted reports whether the pool that the block was cut from is accepted.
func (s *state) poolAccepted(block int) bool {
	if block == secondBlock {
		return s.store.pool == newPoolAccepted
	}
	return s.store.pool == poolAccepted
}
