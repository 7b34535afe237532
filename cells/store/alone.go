package store

// Alone tells whether nobody reaches the store but through s: a file is open once. What is there of another agent is of one
// before this.
func Alone(s Store) bool {
	one, ok := s.(*service)
	if !ok {
		return false
	}
	_, ok = one.backend.(*embedded)
	return ok
}
