package ipam

import "time"

// slot is what is known of one address. It is in at most one ring.
type slot struct {
	prev, next *slot
	block      *block
	offset     uint32
	state      state
	since      time.Duration // when it was released; not in use
	asked      time.Duration // when it was still named, after it had rested; 0: it was not asked about since its release
}

// state says who has an address.
type state uint8

const (
	fresh   state = iota // nobody has ever had it, as far as is known: in no ring
	used                 // it has an owner, or is about to have one: in no ring
	resting              // it was released a short while ago
	due                  // it has rested, and who still names it is to be asked
	held                 // it has rested, and somebody still names it
	free                 // it has rested
	parked               // it has rested, and its block is drained: in no ring
)

// ring is a list of slots with no memory of its own, so that any of them leaves it in constant time.
type ring struct{ head, tail *slot }

// put has s stand before at; nil is the end.
func (r *ring) put(s, at *slot) {
	s.next, s.prev = at, r.tail
	if at != nil {
		s.prev = at.prev
	}
	r.relink(s)
}

// relink has the neighbours of s point at it.
func (r *ring) relink(s *slot) {
	if s.prev != nil {
		s.prev.next = s
	} else {
		r.head = s
	}
	if s.next != nil {
		s.next.prev = s
	} else {
		r.tail = s
	}
}

func (r *ring) remove(s *slot) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		r.head = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		r.tail = s.prev
	}
	s.prev, s.next = nil, nil
}

// putOld puts s where its time belongs. It is quick for one that is older than most.
func (r *ring) putOld(s *slot) {
	at := r.head
	for at != nil && at.since <= s.since {
		at = at.next
	}
	r.put(s, at)
}

// putNew is putOld, quick for one that is newer than most.
func (r *ring) putNew(s *slot) {
	var at *slot
	for before := r.tail; before != nil && before.since > s.since; before = before.prev {
		at = before
	}
	r.put(s, at)
}

// merge puts slots, oldest first, where their times belong, in one pass.
func (r *ring) merge(slots []*slot) {
	at := r.head
	for _, s := range slots {
		for at != nil && at.since <= s.since {
			at = at.next
		}
		r.put(s, at)
	}
}
