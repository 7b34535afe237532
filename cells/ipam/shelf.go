package ipam

import (
	"slices"
	"time"
)

const (
	// maxRest is the longest that a released address is given to nobody, though somebody names it.
	maxRest = 20 * time.Minute
	// askAgain is how long an address that is still named is left alone.
	askAgain = 30 * time.Second
)

// shelf has blocks of one family, and their addresses in the order in which they are given out: fresh ones, then the one
// that has been free for the longest time. It takes constant time, however many blocks there are; an address passes from
// one ring to the next once. It is not safe for concurrent use.
type shelf struct {
	pool                *pool
	blocks              []*block
	young               []*block // those that may have fresh addresses, in the order in which they are used up
	resting, held, free ring     // by time: of the release, of the question, of the release
}

func (s *shelf) add(b *block) {
	b.shelf = s
	s.blocks = append(s.blocks, b)
	s.young = append(s.young, b)
}

// settle moves on what has rested.
func (s *shelf) settle(now time.Duration) {
	for e := s.resting.head; e != nil && e.since <= now-s.pool.settings.Quarantine; e = s.resting.head {
		s.rested(e)
	}
	for e := s.held.head; e != nil && e.asked <= now-askAgain; e = s.held.head {
		s.rested(e)
	}
}

// rested takes an address out of its ring, to be given out or parked. One that was held is older than what is free.
func (s *shelf) rested(e *slot) {
	wasHeld := e.state == held
	s.unlink(e)
	switch {
	case e.block.drained:
		e.state = parked
	case wasHeld:
		e.state = free
		s.free.putOld(e)
	default:
		e.state = free
		s.free.putNew(e)
	}
}

// unlink takes an address out of the ring that it is in, if any.
func (s *shelf) unlink(e *slot) {
	switch e.state {
	case resting:
		s.resting.remove(e)
		e.block.resting--
	case held:
		s.held.remove(e)
		e.block.resting--
	case free:
		s.free.remove(e)
	}
}

// next returns the address to give out, and leaves it where it is; nil when there is none. One that is held is given out
// when it was not asked about since began, as who named it may have forgotten.
func (s *shelf) next(began time.Duration) *slot {
	if e := s.free.head; e != nil && e.since == never {
		return e // it was given back
	}
	for len(s.young) > 0 {
		if e := s.young[0].nextFresh(); e != nil {
			return e
		}
		s.young = slices.Delete(s.young, 0, 1)
	}
	if e := s.free.head; e != nil {
		return e
	}
	if e := s.held.head; e != nil && !e.block.drained && e.asked < began {
		return e
	}
	return nil
}

// oldest returns the address that rests for the longest time of those that may be given out, or nil. It passes those of
// drained blocks over one by one, which are few.
func (s *shelf) oldest() (found *slot) {
	for _, e := range []*slot{s.held.head, s.resting.head} {
		for ; e != nil && e.block.drained; e = e.next {
		}
		if e != nil && (found == nil || e.since < found.since) {
			found = e
		}
	}
	return found
}

// use gives an address out.
func (s *shelf) use(e *slot) {
	s.unlink(e)
	e.state = used
	e.block.used++
}

// rest has an address that is in use, or not, be released at a time.
func (s *shelf) rest(e *slot, since time.Duration) {
	if e.state == used {
		e.block.used--
	}
	s.unlink(e)
	e.state, e.since = resting, since
	e.block.resting++
	s.resting.putNew(e)
}

// hold has an address that is in use and was about to be given out rest on, as it is still named.
func (s *shelf) hold(e *slot, now time.Duration) {
	e.block.used--
	e.block.resting++
	e.state, e.asked = held, now
	s.held.put(e, nil)
}

// giveBack takes back an address that was about to be given out, and was not used.
func (s *shelf) giveBack(e *slot) {
	e.block.used--
	e.state = parked
	if !e.block.drained {
		e.state = free
		s.free.putOld(e)
	}
}

// yield takes back an address that another IPAM had given. Ours never gave it, so it needs no rest; but the other may give
// it again, so of all that are free it is the last to be given. What has rested is settled before.
func (s *shelf) yield(e *slot, now time.Duration) {
	e.since = now - s.pool.settings.Quarantine
	e.block.used--
	e.state = parked
	if !e.block.drained {
		e.state = free
		s.free.put(e, nil)
	}
}
