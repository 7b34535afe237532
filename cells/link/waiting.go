package link

import (
	"maps"
	"slices"
	"sync"
)

// waiting are the callers that wait for a link to go.
type waiting struct {
	mu    sync.Mutex        // guards the field below
	links map[chan bool]int // by where to tell it: true when the link is gone, false when the caller must look for itself
}

// tell wakes those that wait for a link that whom picks.
func (w *waiting) tell(whom func(index int) bool, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for told, index := range w.links {
		if whom(index) {
			select {
			case told <- gone:
			default: // it has something to read
			}
		}
	}
}

// expect begins to wait. It comes before the deletion, so that no notification is missed, and forget after it.
func (w *waiting) expect(index int) chan bool {
	told := make(chan bool, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.links[told] = index
	return told
}

func (w *waiting) forget(told chan bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.links, told)
}

func (w *waiting) indexes() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.links))
}
