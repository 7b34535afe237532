package endpointmanager

import (
	"time"
)

// wallTime is the time for people: a value that is the same after it was written to the ledger and read again.
func wallTime() time.Time { return time.Now().Round(0).UTC() }

// since is when a caller began, as it says, but never in the future: nothing could come after that. A caller that does
// not say began now.
func (m *manager) since(began time.Duration) time.Duration {
	if now := m.boot(); began <= 0 || began > now {
		return now
	}
	return began
}
