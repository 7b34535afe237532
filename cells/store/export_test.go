package store

import "time"

// SetClock replaces the clock of leases. It is called before Start.
func SetClock(s Service, boot func() time.Duration) { s.(*service).boot = boot }
