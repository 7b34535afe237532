package allocator

import (
	"fmt"
	"time"
)

// record is what one owner has.
type record struct {
	Allocation
	addresses [families]*address
	token     string        // of a reservation; "" for what is none
	until     time.Duration // when a reservation ends, by the allocator's clock
	restored  bool          // a reservation of an earlier life of the agent
}

// askedAgain notes that an owner has asked for what it has.
func (r *record) askedAgain() {
	r.Asked++
	r.Kept = false
}

// satisfies returns an error unless what an owner has is what it asks for when it asks again.
func (r *record) satisfies(req *Request) error {
	for f := range families {
		if want := f.of(req.Want); want.IsValid() && want != f.of(r.Addresses) {
			return r.errHasAlready()
		}
	}
	return nil
}

// errHasAlready is the error of who has something else.
func (r *record) errHasAlready() error {
	switch {
	case r.token == "":
		return fmt.Errorf("%w: it has %v already", ErrInUse, r.Addresses.List())
	case r.Expires.IsZero():
		return fmt.Errorf("%w: it has reserved %v permanently", ErrInUse, r.Addresses.List())
	}
	return fmt.Errorf("%w: it has reserved %v until %s", ErrInUse, r.Addresses.List(), r.Expires.UTC().Format(time.RFC3339))
}
