package reconcile

import (
	"errors"
	"slices"

	"github.com/vishvananda/netlink"
)

// Part is what owners have of one kind.
//
// All methods may be called concurrently, Update not twice for the same owner.
type Part[O any] interface {
	// Update makes what the owner should have, whatever there is. When it fails, its writes stay.
	Update(owner O) error
	// Compare returns what is missing, or not as Update would make it. It reads each thing by its name, because a list
	// that changes while it is read may lack something. Where only a list tells and it was interrupted, the error wraps
	// netlink.ErrDumpInterrupted.
	Compare(owner O) ([]Difference, error)
	// Orphans lists what Update makes and no owner should have. It calls owners after it has read the kernel.
	Orphans(owners func() []O) ([]Orphan[O], error)
}

// Difference is one thing that is not as it should be.
type Difference struct {
	Kind    string // of finding
	Subject string // "route to 10.0.0.2"
	Detail  string // what is there instead: "missing"
}

// String is "route to 10.0.0.2: missing".
func (d Difference) String() string { return d.Subject + ": " + d.Detail }

// Missing is the detail of a thing that is not there.
const Missing = "missing"

// Orphan is one thing that no owner should have.
type Orphan[O any] struct {
	Difference
	// Remove removes it, unless it is gone, has changed, or belongs to one of owners.
	Remove func(owners func() []O) error
}

// Found is a difference of an owner.
type Found[O any] struct {
	Owner O
	Difference
}

// Compare is [Part].Compare of several parts.
func Compare[O any, P Part[O]](owner O, parts ...P) (differences []Difference, err error) {
	for _, part := range parts {
		one, err := part.Compare(owner)
		if err != nil {
			return nil, err
		}
		differences = append(differences, one...)
	}
	return differences, nil
}

// Restore makes what the owner has of the parts as it should be, and says what was not.
func Restore[O any, P Part[O]](owner O, parts ...P) (replaced []string, err error) {
	for _, part := range parts {
		differences, err := part.Compare(owner)
		unknown := errors.Is(err, netlink.ErrDumpInterrupted)
		if err != nil && !unknown {
			return replaced, err
		}
		if !unknown && len(differences) == 0 {
			continue
		}
		for _, d := range differences {
			replaced = append(replaced, d.String())
		}
		if err := part.Update(owner); err != nil {
			return replaced, err
		}
	}
	return replaced, nil
}

// Prune removes the orphans, and names them. It goes on after a failure.
func Prune[O any, P Part[O]](owners func() []O, parts ...P) (removed []string, err error) {
	for _, part := range parts {
		orphans, listErr := part.Orphans(owners)
		err = errors.Join(err, listErr)
		for _, orphan := range orphans {
			if removeErr := orphan.Remove(owners); removeErr != nil {
				err = errors.Join(err, removeErr)
				continue
			}
			removed = append(removed, orphan.Subject)
		}
	}
	return removed, err
}

// Around returns the owners of now and of its previous call, at first of the time of Around: things that were read
// between two calls may belong to owners of either.
func Around[O any](owners func() []O) func() []O {
	latest := owners()
	return func() []O {
		before := latest
		latest = owners()
		return slices.Concat(before, latest)
	}
}

// Examine compares the owners that list returns before the comparison, and the same after it. It leaves out an owner
// whose comparison was interrupted: the next examination may see more.
func Examine[O comparable, P Part[O]](list func() []O, parts ...P) (found []Found[O], err error) {
	var all []Found[O]
	for _, owner := range list() {
		differences, err := Compare(owner, parts...)
		if errors.Is(err, netlink.ErrDumpInterrupted) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, d := range differences {
			all = append(all, Found[O]{owner, d})
		}
	}
	now := map[O]bool{}
	for _, owner := range list() {
		now[owner] = true
	}
	for _, f := range all {
		if now[f.Owner] {
			found = append(found, f)
		}
	}
	return found, nil
}
