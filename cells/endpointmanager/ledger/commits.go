package ledger

import (
	"sync"

	"go.etcd.io/bbolt"
)

// commits writes changes that come at the same time in one transaction: what waits while one is being written goes
// together into the next. A change that comes alone is written at once.
type commits struct {
	run func(func(*bbolt.Tx) error) error // bbolt's Update

	mu      sync.Mutex // guards the fields below
	waiting []*commit
	busy    bool // a caller is writing, and will write the waiting commits, too
}

// commit is one change. One who waits is either told how it went, or to write for all who wait.
type commit struct {
	change func(*bbolt.Tx) error
	turn   chan bool // true: it is yours to write; false: err is set
	err    error
}

// commit returns when the change is on disk, or is not at all.
func (c *commits) commit(change func(*bbolt.Tx) error) error {
	own := &commit{change: change, turn: make(chan bool, 1)}
	c.mu.Lock()
	c.waiting = append(c.waiting, own)
	if !c.busy {
		c.busy = true
		own.turn <- true
	}
	c.mu.Unlock()
	if isOwn := <-own.turn; !isOwn {
		return own.err
	}
	c.mu.Lock()
	batch := c.waiting
	c.waiting = nil
	c.mu.Unlock()
	err := c.run(func(tx *bbolt.Tx) error {
		for _, one := range batch {
			if err := one.change(tx); err != nil {
				return err
			}
		}
		return nil
	})
	for _, one := range batch {
		if one.err = err; err != nil && len(batch) > 1 {
			one.err = c.run(one.change) // another's fault is not its own
		}
		if one != own {
			one.turn <- false
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy = len(c.waiting) > 0; c.busy {
		c.waiting[0].turn <- true
	}
	return own.err
}
