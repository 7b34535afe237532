// Package share divides what the proxy has room for, such as connections, among endpoints: whatever some of them take, some is left for each other one.
package share

// endpoints is how many endpoints are sure to get something. A node has fewer pods, unless it was told to have more (kubelet's maxPods is 110).
const endpoints = 256

// Share counts what endpoints have. Half of all is set aside, in equal parts, for 256 endpoints; what one has above its part comes out of the other half. A caller has
// a lock.
type Share struct {
	each, total int
	part        int // that is set aside for an endpoint
	used        int
	above       int // of all endpoints, above their parts
	have        map[uint16]int
}

// New returns a share of total, of which an endpoint has at most each.
func New(each, total int) Share {
	return Share{each: each, total: total, part: max(1, total/2/endpoints), have: map[uint16]int{}}
}

// Result is what came of Take.
type Result int

// The results there are.
const (
	Taken        Result = iota
	EndpointFull        // the endpoint has what one may have
	AllFull             // there is nothing left that it could have
)

// Take gives the endpoint one more.
func (s *Share) Take(endpoint uint16) Result {
	n := s.have[endpoint]
	switch {
	case n >= s.each:
		return EndpointFull
	case s.used >= s.total, n >= s.part && s.above >= s.total/2:
		return AllFull
	}
	if n >= s.part {
		s.above++
	}
	s.have[endpoint] = n + 1
	s.used++
	return Taken
}

// Release takes one back.
func (s *Share) Release(endpoint uint16) {
	n := s.have[endpoint] - 1
	if n >= s.part {
		s.above--
	}
	s.used--
	if s.have[endpoint] = n; n == 0 {
		delete(s.have, endpoint)
	}
}

// Used is how many are taken, of all endpoints.
func (s *Share) Used() int { return s.used }
