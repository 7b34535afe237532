package doctor

import v1 "porin.dev/porin/api/v1"

// Counter is a [Checker] that tells how much it has looked at.
type Counter interface {
	Checker
	// Compared is of the last Examine of everything, and called by the one who called that.
	Compared() []Compared
}

// Compared is a number of things of one sort, such as 12 "routes".
type Compared struct {
	What  string // in the plural
	Count int
}

// compared is empty for a checker that does not count, or has not seen all.
func compared(checker Checker, err error) (all []v1.Compared) {
	counter, ok := checker.(Counter)
	if !ok || err != nil {
		return nil
	}
	for _, c := range counter.Compared() {
		all = append(all, v1.Compared{What: c.What, Count: c.Count})
	}
	return all
}
