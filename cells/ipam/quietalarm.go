package ipam

import (
	"math"
	"time"
)

// alarm says when there is next something to ask about, to whoever waits for that. The allocator's lock guards it. There is
// none, but nil, when there is nobody to ask.
type alarm struct {
	at   time.Duration // by the allocator's clock
	wake chan struct{} // has room for one: it is before what the waiter has read
}

// silent is the time of an alarm when nothing rests.
const silent = time.Duration(math.MaxInt64)

func newAlarm() *alarm { return &alarm{at: silent, wake: make(chan struct{}, 1)} }

// by has the alarm go off at a time at the latest.
func (l *alarm) by(at time.Duration) {
	if l == nil || at >= l.at {
		return
	}
	l.at = at
	select {
	case l.wake <- struct{}{}:
	default:
	}
}
