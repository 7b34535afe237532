package control

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"porin.dev/porin/cells/proxy/offline"
)

// The pauses before a journal that another process has is tried again: a proxy that ends, or was killed.
const (
	firstOpen = 5 * time.Millisecond
	lastOpen  = time.Second
)

// prepare reads the journal, which another proxy may have. It is called before that gives it up: queries wait for [LearnRouter.open] then.
func (l *LearnRouter) prepare() {
	l.prepared = offline.PrepareJournal(filepath.Join(l.dir, "proxy-names"), offline.DefaultLimits())
}

// open opens the journal, which one process may have: it waits for that until ctx ends. Without it, names are learned that need none.
func (l *LearnRouter) open(ctx context.Context) {
	pause := firstOpen
	for {
		err := l.tryOpen()
		if err == nil {
			return
		}
		if pause == lastOpen || !errors.Is(err, offline.ErrLocked) {
			l.goOnWithout(err)
		}
		select {
		case <-ctx.Done():
			l.prepared.Close()
			return
		case <-time.After(pause):
			pause = min(2*pause, lastOpen)
		}
	}
}

// tryOpen opens the journal once. An agent that has connected before is told to import the names in it.
func (l *LearnRouter) tryOpen() error {
	if l.prepared == nil {
		l.prepare()
	}
	journal, err := l.prepared.Open(l.log)
	if err != nil {
		return err
	}
	l.prepared = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return journal.Close()
	}
	l.journal, l.openError = journal, nil
	if l.local == nil {
		l.local = offline.NewWriter(l.maps, l.lock, journal, l.classes.Read)
	} else {
		l.local.UseJournal(journal)
	}
	l.broadcast()
	if agent := l.agent; agent != nil {
		go func() { _ = agent.notify(methodNamesAvailable, struct{}{}) }() // an end that is gone is noticed by who reads
	}
	return nil
}

// goOnWithout has names be learned without a journal.
func (l *LearnRouter) goOnWithout(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.openError = err
	if l.local == nil {
		l.local = offline.NewWriter(l.maps, l.lock, nil, l.classes.Read)
		l.broadcast()
	}
}

// journalError is why the journal cannot be used.
func (l *LearnRouter) journalError() error {
	l.mu.Lock()
	err, local := l.openError, l.local
	l.mu.Unlock()
	if err == nil && local != nil {
		err = local.JournalError()
	}
	if err != nil {
		err = fmt.Errorf("new addresses of names cannot be learned while no agent runs: %w", err)
	}
	return err
}

// close returns when nothing is written any more. Names are learned by the next proxy from now on, if there is one.
func (l *LearnRouter) close(next *rpcConn) error {
	l.notifier.close()
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
	err := l.local.Close()
	if l.journal != nil {
		err = errors.Join(err, l.journal.Close())
	}
	l.counts, l.local, l.journal, l.openError = l.local.Counts(), nil, nil, nil
	return err
}

// listJournal returns what the journal has, up to a mark.
func (l *LearnRouter) listJournal() (all importNamesAnswer) {
	if journal := l.openJournal(); journal != nil {
		all.Learned, all.Mark = journal.List()
	}
	return all
}

// removeImported removes from the journal what the agent has imported, up to a mark. It writes a file.
func (l *LearnRouter) removeImported(mark uint64) error {
	journal := l.openJournal()
	if journal == nil {
		return nil
	}
	return journal.Remove(mark)
}

// openJournal is nil while there is none. The lock is not held while the journal is used: queries wait for it.
func (l *LearnRouter) openJournal() *offline.Journal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.journal
}
