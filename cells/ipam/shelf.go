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
	pool                     *pool
	blocks                   []*block
	young                    []*block // those that may have fresh addresses, in the order in which they are used up
	resting, due, held, free ring     // by time of the release; held by that of the question
}

func (s *shelf) add(b *block) {
	b.shelf = s
	s.blocks = append(s.blocks, b)
	s.young = append(s.young, b)
}

// settle moves on what has rested.
func (s *shelf) settle(now time.Duration) {
	for e := s.resting.head; e != nil && e.since <= now-s.pool.settings.Quarantine; e = s.resting.head {
		s.rested(e, now)
	}
	for e := s.held.head; e != nil && e.asked <= now-askAgain; e = s.held.head {
		s.rested(e, now)
	}
	for e := s.due.head; e != nil && !s.asksAbout(e, now); e = s.due.head {
		s.clear(e)
	}
}

// rested has an address wait for the question who still names it, or be free if nobody is asked.
func (s *shelf) rested(e *slot, now time.Duration) {
	if !s.asksAbout(e, now) {
		s.clear(e)
		return
	}
	s.unlink(e)
	e.state = due
	e.block.resting++
	if e.asked > 0 {
		s.due.putOld(e)
	} else {
		s.due.putNew(e)
	}
}

// asksAbout tells whether anybody is asked about an address. It is not worth it when the address may not be held until it
// would be asked about again.
func (s *shelf) asksAbout(e *slot, now time.Duration) bool {
	return s.pool.asks() && e.since+maxRest >= now+askAgain
}

// clear has an address be free, or parked. One that was held is older than most that are free.
func (s *shelf) clear(e *slot) {
	s.unlink(e)
	switch {
	case e.block.drained:
		e.state = parked
	case e.asked > 0:
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
	case due:
		s.due.remove(e)
		e.block.resting--
	case held:
		s.held.remove(e)
		e.block.resting--
	case free:
		s.free.remove(e)
	}
}

// next returns the address to give out, and leaves it where it is; nil when there is none.
func (s *shelf) next() *slot {
	for len(s.young) > 0 {
		if e := s.young[0].nextFresh(); e != nil {
			return e
		}
		s.young = slices.Delete(s.young, 0, 1)
	}
	return s.free.head
}

// doubtful tells whether an address might be had by a question, asked for somebody who came when it was began.
func (s *shelf) doubtful(began time.Duration) bool {
	for e := s.due.head; e != nil; e = e.next {
		if !e.block.drained {
			return true
		}
	}
	for e := s.held.head; e != nil && e.asked < began; e = e.next {
		if !e.block.drained {
			return true
		}
	}
	return false
}

// oldest returns the address that rests for the longest time of those that may be given out, or nil. It passes those of
// drained blocks over one by one, which are few.
func (s *shelf) oldest() (found *slot) {
	for _, e := range []*slot{s.held.head, s.due.head, s.resting.head} {
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
	e.state, e.since, e.asked = resting, since, 0
	e.block.resting++
	s.resting.putNew(e)
	s.pool.alarm.by(since + s.pool.settings.Quarantine)
}

// hold has an address rest on, as it was still named when it was asked about.
func (s *shelf) hold(e *slot, asked time.Duration) {
	s.unlink(e)
	e.block.resting++
	e.state, e.asked = held, asked
	s.held.put(e, nil)
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
