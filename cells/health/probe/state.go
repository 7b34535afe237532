package probe

import (
	"net/netip"
	"time"
)

// Bounds are the upper bounds of the latency histogram of a path; higher latencies are in one more bucket.
func Bounds() []time.Duration {
	return []time.Duration{
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond,
		5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
	}
}

const bucketCount = 10

// State is what became of the probes of one path.
type State struct {
	Address   netip.Addr // the zero Addr: there is no such path
	LastProbe time.Time  // when the last probe ended; zero before the first
	LastSeen  time.Time  // when the last successful one ended; zero before the first
	Latency   time.Duration
	Failures  int // of the last probes, in a row
	Err       error
	Histogram [bucketCount]uint32 // of Latency, by [Bounds]
}

// Probed reports whether there is a result.
func (s State) Probed() bool { return !s.LastProbe.IsZero() }

// OK reports whether the last probe succeeded.
func (s State) OK() bool { return s.Probed() && s.Failures == 0 }

// Failing reports whether the last probe failed.
func (s State) Failing() bool { return s.Failures > 0 }

func (s *State) note(now time.Time, latency time.Duration, err error) {
	s.LastProbe, s.Err = now, err
	if err != nil {
		s.Failures++
		return
	}
	s.LastSeen, s.Latency, s.Failures = now, latency, 0
	bucket := 0
	for _, bound := range Bounds() {
		if latency <= bound {
			break
		}
		bucket++
	}
	s.Histogram[bucket]++
}
