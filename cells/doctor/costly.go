package doctor

import (
	"math/rand/v2"
	"time"
)

// Costly is a [Checker] whose look is a burden for others, such as the cluster's store, which all nodes ask. Whoever asks has
// it look; an agent on its own does so now and then only. What it has found stays known in between.
type Costly interface {
	Checker
	// Every is the least time between two looks that nobody has asked for, and more than zero.
	Every() time.Duration
}

// due tells whether a checker is to look though nobody asks. Costly ones begin at a random time, as many agents may have
// started together.
func (d *Doctor) due(checker Checker) bool {
	costly, ok := checker.(Costly)
	if !ok {
		return true
	}
	now, every := d.now(), costly.Every()
	next, known := d.next[checker.Owner()]
	if !known {
		next = now.Add(rand.N(every))
	}
	due := !now.Before(next)
	if due {
		next = now.Add(every)
	}
	d.next[checker.Owner()] = next
	return due
}
