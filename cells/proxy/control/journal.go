package control

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"porin.dev/porin/cells/proxy/offline"
)

// The pauses before a journal that another process has is tried again: a proxy that ends, or was killed.
const (
	firstOpen = 5 * time.Millisecond
	lastOpen  = time.Second
)

// open opens the journal, which one process may have: it waits for that until ctx ends.
func (l *LearnRouter) open(ctx context.Context) {
	pause := firstOpen
	for {
		err := l.tryOpen()
		if err == nil {
			return
		}
		if pause == firstOpen || !errors.Is(err, offline.ErrLocked) {
			l.log.Warn("names cannot be learned while no agent is connected; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
			pause = min(2*pause, lastOpen)
		}
	}
}

// tryOpen opens the journal once. An agent that has connected before is told to fetch the names in it.
func (l *LearnRouter) tryOpen() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.local != nil || l.closed {
		return nil
	}
	journal, err := offline.OpenJournal(filepath.Join(l.dir, "proxy-names"), offline.DefaultLimits(), l.log)
	if err != nil {
		return err
	}
	l.journal, l.local = journal, offline.NewWriter(l.maps, l.lock, journal, l.classes.Read)
	l.broadcast()
	if agent := l.agent; agent != nil {
		go func() { _ = agent.notify(methodNames, struct{}{}) }() // an end that is gone is noticed by who reads
	}
	return nil
}

// close returns when nothing is written any more. Names are learned by the next proxy from now on, if there is one.
func (l *LearnRouter) close(next *peer) error {
	l.tells.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if next != nil {
		l.journalOwner = next
	}
	l.broadcast()
	if l.local == nil {
		return nil
	}
	err := errors.Join(l.local.Close(), l.journal.Close())
	l.counts, l.local = l.local.Counts(), nil
	return err
}

// learned is what the journal has, up to a mark.
func (l *LearnRouter) learned() (all journalContents) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.local != nil {
		all.Learned, all.Mark = l.journal.List()
	}
	return all
}

// forget removes from the journal what the agent has, up to a mark.
func (l *LearnRouter) forget(mark uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.local == nil {
		return nil
	}
	return l.journal.Remove(mark)
}
