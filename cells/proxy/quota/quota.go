// Package quota divides what the proxy has room for, such as connections, among endpoints: whatever some of them take,
// some is left for each other one.
package quota

// Endpoints is how many endpoints are guaranteed something. A node has fewer pods, unless it was told to have more
// (kubelet's maxPods is 110).
const Endpoints = 256

// Quota counts what endpoints have. Half of all is set aside, in equal parts, for [Endpoints] endpoints; what one has
// above that comes out of the other half. It is not safe for concurrent use; the caller holds a lock.
type Quota struct {
	each, total int
	guaranteed  int // to each endpoint
	used        int
	borrowed    int // what all endpoints have above what is guaranteed
	have        map[uint16]int
}

// New returns a quota of total; an endpoint has at most each.
func New(each, total int) Quota {
	return Quota{each: each, total: total, guaranteed: max(1, total/2/Endpoints), have: map[uint16]int{}}
}

// Result is what came of Acquire.
type Result int

// The results there are.
const (
	Acquired      Result = iota
	EndpointLimit        // the endpoint has what one may have
	TotalLimit           // there is nothing left that it could have
)

// Acquire gives the endpoint n more, all or none.
func (q *Quota) Acquire(endpoint uint16, n int) Result {
	have := q.have[endpoint]
	borrow := max(0, have+n-max(q.guaranteed, have))
	switch {
	case have+n > q.each:
		return EndpointLimit
	case q.used+n > q.total, borrow > 0 && q.borrowed+borrow > q.total/2:
		return TotalLimit
	}
	q.borrowed += borrow
	q.have[endpoint] = have + n
	q.used += n
	return Acquired
}

// Release takes n back, which must not be more than the endpoint has.
func (q *Quota) Release(endpoint uint16, n int) {
	left := q.have[endpoint] - n
	q.borrowed -= max(0, min(n, left+n-q.guaranteed))
	q.used -= n
	if q.have[endpoint] = left; left == 0 {
		delete(q.have, endpoint)
	}
}

// Used is how many are taken, of all endpoints.
func (q *Quota) Used() int { return q.used }
