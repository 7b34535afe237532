package ipam

import "time"

// Settings are how a pool's addresses are given out.
type Settings struct {
	// IPv4 and IPv6 are the families of which every owner gets an address. One that the pool has, and of which this node
	// has no block yet, is waited for: nobody gets half.
	IPv4, IPv6 bool
	// Quarantine is how long a released address is given to nobody. When it is zero nobody is asked who names it, either.
	Quarantine time.Duration
	// ReuseResting has the address that rests for the longest time given out when nothing else is free.
	ReuseResting bool
}

func (s Settings) has(f family) bool {
	if f == ipv6 {
		return s.IPv6
	}
	return s.IPv4
}
