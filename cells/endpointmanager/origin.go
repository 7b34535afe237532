package endpointmanager

import (
	"time"

	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/netns"
)

// origin is the boot of the node and the network namespace that a ledger speaks of. The zero origin is that of a ledger from
// before origins were written.
type origin struct {
	Boot  string // as internal/boottime.ID
	NetNS uint64 // its cookie
}

// originHere is that of this process.
func originHere() (here origin, err error) {
	if here.Boot, err = boottime.ID(); err != nil {
		return here, err
	}
	here.NetNS, err = netns.OwnCookie()
	return here, err
}

// relation says what a ledger's records are worth to this process.
type relation int

const (
	current      relation = iota // of this boot and this namespace
	former                       // of another boot, or of a namespace that is gone: nothing of what they name is there
	undetermined                 // of another namespace of this boot, which may be the host's: see suspension
)

// relationOf compares the origin of a ledger with that of this process.
func relationOf(ledger, here origin) relation {
	switch {
	case ledger == origin{} || ledger == here:
		return current
	case ledger.Boot != here.Boot:
		return former
	}
	return undetermined
}

// withoutTimes is the record without what means nothing in another boot: the times of the boot clock.
func (r record) withoutTimes() record {
	r.Endpoint.Spec.Began, r.Config.Began, r.Boot = 0, 0, 0
	return r
}

// isFormer reports whether the record is of another boot although the ledger does not say so: it was written in the future.
func (r record) isFormer(now time.Duration) bool { return r.Boot > now }
