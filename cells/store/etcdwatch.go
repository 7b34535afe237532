package store

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// tail reads etcd's answers as they come into a history of its own, which is bounded; etcd's client would hold all that
// its reader has not read.
func (e *etcd) tail(ctx context.Context, prefix string, after int64) tail {
	ctx, cancel := context.WithCancel(ctx)
	h, done := newHistory(after), make(chan struct{})
	go func() {
		defer close(done)
		h.fail(e.fill(ctx, h, prefix, after))
	}()
	return tail{history: h, prefix: prefix, only: true, close: func() { cancel(); <-done }}
}

// errWatchEnded is returned when etcd's client has closed a watch without a reason.
var errWatchEnded = errors.New("the watch has ended")

// fill returns why there is no more. A connection that is lost and made again is the client's business: it goes on after
// the last change, and does not notice that etcd was rolled back meanwhile.
func (e *etcd) fill(ctx context.Context, h *history, prefix string, after int64) error {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return e.fault(err)
	}
	rolledBack := e.progress.rolledBack()
	// Without a leader a member knows nothing new: try another one.
	answers := c.Watch(clientv3.WithRequireLeader(ctx), e.cfg.Prefix+prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1),
		clientv3.WithCreatedNotify(), clientv3.WithProgressNotify())
	for {
		answer, err := next(ctx, answers, rolledBack)
		if err != nil {
			return e.fault(err)
		}
		if answer.Header.Revision < after {
			return errGone // etcd was rolled back, or the member lags
		}
		if answer.Created {
			continue // its revision says nothing about what has been sent
		}
		after = reached(answer)
		h.add(after, e.events(answer.Events)...)
	}
}

// next waits for an answer. It returns errGone when etcd was rolled back.
func next(ctx context.Context, answers clientv3.WatchChan, rolledBack <-chan struct{}) (clientv3.WatchResponse, error) {
	select {
	case answer, ok := <-answers:
		if !ok {
			return answer, cmp.Or(ctx.Err(), errWatchEnded)
		}
		return answer, answer.Err()
	case <-rolledBack:
		return clientv3.WatchResponse{}, errGone
	}
}

// reached is the revision up to which all is sent. That of the head may be ahead of the events, when there are more to
// come.
func reached(answer clientv3.WatchResponse) int64 {
	if n := len(answer.Events); n > 0 {
		return answer.Events[n-1].Kv.ModRevision
	}
	return answer.Header.Revision
}

func (e *etcd) events(from []*clientv3.Event) []Event {
	events := make([]Event, 0, len(from))
	for _, one := range from {
		event := Event{Type: Put, Entry: e.entry(one.Kv), revision: one.Kv.ModRevision}
		if one.Type == clientv3.EventTypeDelete {
			event.Type = Deleted
		}
		events = append(events, event)
	}
	return events
}

// progress is how far etcd has come, by its answers. When a later request is answered from before it, etcd was rolled back, as
// from a backup: revisions are given a second time, and nothing that watches have sent need hold. A watch that goes on after
// a revision that is not there yet would get nothing, or a part.
//
// When etcd has grown beyond that revision again before anybody asked, only the term shows it, if at all: each election
// makes it grow, and a restored cluster begins anew.
type progress struct {
	mu   sync.Mutex // guards the fields below
	last mark
	back chan struct{} // closed when etcd was rolled back
}

// mark is a progress at a time.
type mark struct{ revision, term int64 }

func newProgress() *progress { return &progress{back: make(chan struct{})} }

// now is called before a request.
func (p *progress) now() mark {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// rolledBack returns a channel that is closed when etcd is found to be rolled back from now on.
func (p *progress) rolledBack() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.back
}

// observe records an answer, with the mark from before its request. The answer must be a quorum's: a member alone may lag.
func (p *progress) observe(before mark, answer *etcdserverpb.ResponseHeader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	got := mark{answer.Revision, int64(answer.RaftTerm)}
	if got.revision < before.revision || got.term < before.term {
		p.last = got
		close(p.back)
		p.back = make(chan struct{})
		return
	}
	p.last = mark{max(p.last.revision, got.revision), max(p.last.term, got.term)}
}
