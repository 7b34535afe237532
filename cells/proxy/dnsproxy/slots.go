package dnsproxy

// slots counts something of each endpoint, and of all. The caller has a lock.
type slots struct {
	each, total int
	used        int
	endpoints   map[uint16]int
}

func newSlots(each, total int) slots {
	return slots{each: each, total: total, endpoints: map[uint16]int{}}
}

// take returns another outcome than "" when there is no room.
func (s *slots) take(endpoint uint16) Outcome {
	switch {
	case s.endpoints[endpoint] >= s.each:
		return EndpointLimit
	case s.used >= s.total:
		return TotalLimit
	}
	s.endpoints[endpoint]++
	s.used++
	return ""
}

func (s *slots) release(endpoint uint16) {
	s.used--
	if s.endpoints[endpoint]--; s.endpoints[endpoint] == 0 {
		delete(s.endpoints, endpoint)
	}
}
