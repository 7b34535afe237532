package datapath

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Part is a part of the kernel in which every endpoint has something: its map entries, or what is on its link. A start,
// the pruning after it and the doctor compare by Compare and Stale alone what endpoints should have with what there is.
//
// All methods may be called concurrently, Update and Delete not for the same endpoint.
type Part interface {
	// Update makes the endpoint's part as e says, whatever it was. When it fails, its writes are left to Delete.
	Update(e Entry) error
	// Delete removes what Update made of e.Link and e.ID, as far as it is there.
	Delete(e Entry) error
	// Compare returns what is missing, or not as Update would make it. It reads each thing by its name, because a list that
	// changes while it is read may lack something; where only a list tells and it was interrupted, the error wraps
	// netlink.ErrDumpInterrupted.
	Compare(e Entry) ([]Difference, error)
	// Stale lists what Update makes for endpoints and no endpoint should have. It calls want after it has read the kernel.
	Stale(want Want) ([]Stale, error)
}

// Want returns what the endpoints should have now.
type Want func() Desired

// Difference is one thing in the kernel that is not as it should be.
type Difference struct {
	Kind    string // of finding: see kinds.go
	Subject string // "route to 10.0.0.2"
	Detail  string // what it is instead: "missing"
}

// String is "route to 10.0.0.2: missing".
func (d Difference) String() string { return d.Subject + ": " + d.Detail }

// missing is the detail of what is not there at all.
const missing = "missing"

// Stale is one thing in the kernel that no endpoint should have.
type Stale struct {
	Difference
	// Remove removes it, unless it is gone, has changed, or belongs to an endpoint of want.
	Remove func(want Want) error
}

// restorePart makes what the endpoint has of the part what it should be, and says what was not.
func restorePart(p Part, e Entry) (replaced []string, err error) {
	differences, err := p.Compare(e)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, p.Update(e) // whether it was right remains unknown
	}
	if err != nil || len(differences) == 0 {
		return nil, err
	}
	for _, d := range differences {
		replaced = append(replaced, d.String())
	}
	return replaced, p.Update(e)
}

// prunePart removes what is stale, and names it. It goes on after what cannot be removed.
func prunePart(p Part, want Want) (removed []string, err error) {
	stale, err := p.Stale(want)
	for _, s := range stale {
		if removeErr := s.Remove(want); removeErr != nil {
			err = errors.Join(err, removeErr)
			continue
		}
		removed = append(removed, s.Subject)
	}
	return removed, err
}
