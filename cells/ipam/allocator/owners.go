package allocator

import (
	"fmt"
	"time"

	"porin.dev/porin/internal/boottime"
)

// owners finds what every owner has. It is not safe for concurrent use.
type owners struct {
	records    map[Handle]*record
	podHandles map[Handle]int // to how many owners name it, to find the last
	spare      []*record
	seq        uint64 // the last one
}

func newOwners() owners {
	return owners{records: map[Handle]*record{}, podHandles: map[Handle]int{}, seq: uint64(boottime.Now())}
}

// list returns what every owner has, in no order.
func (o *owners) list() []Allocation {
	list := make([]Allocation, 0, len(o.records))
	for _, r := range o.records {
		list = append(list, r.Allocation)
	}
	return list
}

// add records what an owner has got. Nobody else has the addresses.
func (o *owners) add(allocation Allocation, addresses [families]*address) *record {
	r := o.newRecord()
	r.Allocation, r.addresses = allocation, addresses
	o.insert(r)
	for _, e := range addresses {
		if e != nil {
			e.use(r)
		}
	}
	return r
}

// newRecord reuses an unneeded one, so that no garbage is made.
func (o *owners) newRecord() *record {
	if n := len(o.spare); n > 0 {
		r := o.spare[n-1]
		o.spare = o.spare[:n-1]
		return r
	}
	return new(record)
}

// insert adds a record under its owner, with a new sequence number.
func (o *owners) insert(r *record) {
	o.seq++
	r.Seq = o.seq
	o.records[r.Owner] = r
	o.countPodHandle(r.PodHandle, 1)
}

// remove is the reverse of insert.
func (o *owners) remove(r *record) {
	delete(o.records, r.Owner)
	o.countPodHandle(r.PodHandle, -1)
}

// keepSpare keeps a removed record without references for reuse.
func (o *owners) keepSpare(r *record) {
	*r = record{}
	o.spare = append(o.spare, r)
}

func (o *owners) countPodHandle(h Handle, by int) {
	if h == "" {
		return
	}
	if o.podHandles[h] += by; o.podHandles[h] == 0 {
		delete(o.podHandles, h)
	}
}

// releasedWith returns what the pod's handle of an owner that is gone has, if no other owner names it and it is not
// reserved; else nil. What that handle has got later is for an owner that is yet to come.
func (o *owners) releasedWith(gone *record) *record {
	if gone.PodHandle == "" || o.podHandles[gone.PodHandle] > 0 {
		return nil
	}
	if pod := o.records[gone.PodHandle]; pod != nil && pod.Seq < gone.Seq && !pod.Reserved {
		return pod
	}
	return nil
}

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
