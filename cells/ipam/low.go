package ipam

// low is whom to tell when little is left.
type low struct {
	below int
	tell  func()
}

// Low implements [MultiPool].
func (a *allocator) Low(below int, tell func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.low = low{below, tell}
}

// spent tells when a pool has come to have too little of a family: once, and not at each address after that.
func (a *allocator) spent(p *pool) {
	if a.low.tell == nil {
		return
	}
	for f := range families {
		if p.settings.has(f) && p.free(f) == a.low.below-1 {
			a.low.tell()
			return
		}
	}
}

// free counts the addresses that may be given out now.
func (p *pool) free(f family) (n int) {
	for _, s := range p.shelves[f] {
		for _, b := range s.blocks {
			if !b.drained {
				n += b.capacity() - b.used - b.resting
			}
		}
	}
	return n
}
