package store

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// What a history holds at most. A reader that is further behind gets the whole list instead.
const (
	historyEvents = 4096
	historyBytes  = 4 << 20
)

// history is the latest changes, in order. One goroutine adds, many read, each at its own pace.
type history struct {
	mu     sync.Mutex // guards the fields below
	events []Event    // Put and Deleted, by revision
	bytes  int
	from   int64         // every change after this revision is here, up to to
	to     int64         //
	err    error         // there will be no more
	more   chan struct{} // closed when there is something new
}

// newHistory returns one that begins after the revision.
func newHistory(revision int64) *history {
	return &history{from: revision, to: revision, more: make(chan struct{})}
}

// add takes changes that belong together; upto is the revision that they reach.
func (h *history) add(upto int64, events ...Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, events...)
	for _, event := range events {
		h.bytes += sizeOf(event)
	}
	h.to = max(h.to, upto)
	if len(h.events) > historyEvents || h.bytes > historyBytes {
		h.dropWhile(func(Event) bool { return len(h.events) > historyEvents*3/4 || h.bytes > historyBytes*3/4 })
	}
	h.wake()
}

// fail ends it. Readers get what is there before the error.
func (h *history) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.err = err
	h.wake()
}

// forget drops the changes up to the revision.
func (h *history) forget(revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropWhile(func(first Event) bool { return first.revision <= revision })
}

// since returns the changes below prefix after the revision, and the revision that they reach. When there is nothing new,
// more is closed as soon as there is.
func (h *history) since(after int64, prefix string) (events []Event, upto int64, more <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after < h.from || after > h.to {
		return nil, after, nil, errGone
	}
	if after == h.to {
		return nil, after, h.more, h.err
	}
	for _, event := range h.events {
		if event.revision > after && strings.HasPrefix(event.Entry.Key, prefix) {
			events = append(events, event)
		}
	}
	return events, h.to, nil, nil
}

func (h *history) wake() {
	close(h.more)
	h.more = make(chan struct{})
}

// dropWhile drops the oldest events as long as drop says so.
func (h *history) dropWhile(drop func(first Event) bool) {
	all, n := h.events, 0
	for len(h.events) > 0 && drop(h.events[0]) {
		h.from = max(h.from, h.events[0].revision)
		h.bytes -= sizeOf(h.events[0])
		h.events, n = h.events[1:], n+1
	}
	h.events = slices.Delete(all, 0, n) // moves the rest to the front, so that the memory is used again
}

// sizeOf is about what an event takes.
func sizeOf(e Event) int { return len(e.Entry.Key) + len(e.Entry.Value) + 128 }

// tail reads a history for one watch.
type tail struct {
	history *history
	prefix  string
	close   func()
	only    bool // nobody else reads the history: it need not hold what was read
}

// next waits for changes after the revision, and returns them and the revision that they reach, or errGone.
func (t tail) next(ctx context.Context, after int64) ([]Event, int64, error) {
	if t.only {
		t.history.forget(after)
	}
	for {
		events, upto, more, err := t.history.since(after, t.prefix)
		if err != nil || upto > after {
			return events, upto, err
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, after, ctx.Err()
		}
	}
}
