package ipam

import (
	"context"
	"net/netip"
	"time"
)

// concludeAtOnce bounds how many answers are worked off under the lock in one go, as allocations wait meanwhile.
const concludeAtOnce = 256

// doubt is an address that is asked about.
type doubt struct {
	addr  netip.Addr
	since time.Duration // when it was released: another time is another release
}

// inquire asks about everything that is due, and about what is held and was not asked about since began, all in one
// question. Who comes while others ask waits, and asks only what is left to ask.
func (a *allocator) inquire(ctx context.Context, began time.Duration) {
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return
	}
	doubts, asked := a.doubts(began)
	if len(doubts) == 0 {
		return
	}
	named := a.named(ctx, doubts)
	if ctx.Err() != nil && len(named) == 0 {
		return // that was no answer
	}
	for len(doubts) > 0 {
		n := min(concludeAtOnce, len(doubts))
		a.conclude(doubts[:n], asked, named)
		doubts = doubts[n:]
	}
}

// doubts lists what is to be asked about, and says when that was.
func (a *allocator) doubts(began time.Duration) (list []doubt, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now = a.tidy()
	for _, p := range a.order {
		for _, s := range p.all() {
			for e := s.due.head; e != nil; e = e.next {
				list = append(list, doubt{e.addr(), e.since})
			}
			for e := s.held.head; e != nil && e.asked < began; e = e.next {
				list = append(list, doubt{e.addr(), e.since})
			}
		}
	}
	return list, now
}

// named puts the question to everybody. Nobody is told what another one has said.
func (a *allocator) named(ctx context.Context, doubts []doubt) map[netip.Addr]bool {
	named := map[netip.Addr]bool{}
	for _, n := range a.quiet {
		addrs := make([]netip.Addr, len(doubts))
		for i, d := range doubts {
			addrs[i] = d.addr
		}
		for _, addr := range n.Named(ctx, addrs) {
			named[addr] = true
		}
	}
	return named
}

// conclude has what is named rest on, and what nobody names be free. What has happened since to an address or to its block
// goes before the answer.
func (a *allocator) conclude(doubts []doubt, asked time.Duration, named map[netip.Addr]bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tidy()
	for _, d := range doubts {
		s := a.index.slot(d.addr)
		switch {
		case s == nil || s.since != d.since || s.state != due && s.state != held:
		case named[d.addr] && s.block.shelf.asksAbout(s, asked):
			s.block.shelf.hold(s, asked)
		default:
			s.block.shelf.clear(s)
		}
	}
}
