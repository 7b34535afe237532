package endpointmanager

import "sync"

// ids gives out endpoint numbers: 16 bits, never 0, and one that was freed comes round again as late as possible, so
// that a stale reference meets nobody rather than somebody else.
type ids struct {
	mu   sync.Mutex // guards the fields below
	used map[uint16]bool
	last uint16
}

// maxID is the largest endpoint number, and how many there are.
const maxID = 1<<16 - 1

func newIDs() *ids { return &ids{used: map[uint16]bool{}} }

// allocate returns a free number or [ErrNoID].
func (i *ids) allocate() (uint16, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for range 1 << 16 {
		i.last++
		if i.last != 0 && !i.used[i.last] {
			i.used[i.last] = true
			return i.last, nil
		}
	}
	return 0, ErrNoID
}

// reserve takes the very number, for an endpoint of an earlier life of the agent. It is false when it is taken.
func (i *ids) reserve(id uint16) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if id == 0 || i.used[id] {
		return false
	}
	i.used[id] = true
	i.last = max(i.last, id)
	return true
}

func (i *ids) count() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.used)
}

func (i *ids) free(id uint16) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.used, id)
}
