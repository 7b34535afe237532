package store

import "context"

// tail is a reader's place behind a history.
type tail struct {
	history *history
	prefix  string
	close   func()
	alone   bool // the history is for this reader only, and need not hold what it has read
}

// next waits for changes after the revision, and returns the revision that they reach. errGone is that they cannot be
// told any more.
func (t tail) next(ctx context.Context, after int64) ([]Event, int64, error) {
	if t.alone {
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
