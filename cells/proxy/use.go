package proxy

import "sync"

// use says whether the way into the proxy is there, and needed.
type use struct {
	opened chan struct{} // has a token when the way was opened

	mu       sync.Mutex // guards the fields below
	open     bool
	removed  bool   // nothing is in the kernel
	idle     bool   // it was not needed at the last look
	accepted uint64 // connections, at the last look
	err      error  // of the last attempt to open or remove it
}

func (u *use) noteOpened(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err, u.removed, u.idle = err, false, false
	if u.open = err == nil; !u.open {
		return
	}
	select {
	case u.opened <- struct{}{}:
	default:
	}
}

func (u *use) noteNeeded() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.idle = false
}

func (u *use) noteRemoved(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err, u.open, u.removed = err, false, err == nil
}

func (u *use) noteStopped() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open = false
}

// isOver reports whether the way is there, and was not needed at two looks in a row. accepted is how many connections there were so far.
func (u *use) isOver(needed bool, accepted uint64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if needed || accepted != u.accepted {
		u.idle, u.accepted = false, accepted
		return false
	}
	if !u.idle {
		u.idle = true
		return false
	}
	return !u.removed
}

// state returns whether the way is open, and why it could not be opened or removed.
func (u *use) state() (open bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.open, u.err
}
