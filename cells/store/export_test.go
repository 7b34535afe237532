package store

import "time"

// SetClock replaces the clock of leases. It is called before Start.
func SetClock(s Service, boot func() time.Duration) { s.(*service).boot = boot }

// Streams counts what an etcd's leases are renewed by.
func Streams(s Service) int {
	r := &s.(*service).backend.(*etcd).renewals
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.streams)
}
