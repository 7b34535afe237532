package store

import (
	"cmp"
	"context"
	"errors"

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
	return tail{history: h, alone: true, close: func() { cancel(); <-done }}
}

// errWatchEnded is that etcd's client has closed a watch without a word.
var errWatchEnded = errors.New("the watch has ended")

// fill returns why there is no more. A connection that is lost and made again is the client's business: it goes on after
// the last change, and does not notice that etcd was set back meanwhile.
func (e *etcd) fill(ctx context.Context, h *history, prefix string, after int64) error {
	c, err := e.dialer.client(ctx)
	if err != nil {
		return err
	}
	back := e.horizon.setBack()
	// Without a leader a member knows nothing new: try another one.
	answers := c.Watch(clientv3.WithRequireLeader(ctx), e.cfg.Prefix+prefix, clientv3.WithPrefix(), clientv3.WithRev(after+1),
		clientv3.WithCreatedNotify(), clientv3.WithProgressNotify())
	for {
		answer, err := next(ctx, answers, back)
		if err != nil {
			return e.fault(err)
		}
		if answer.Header.Revision < after {
			return e.behind(ctx, after)
		}
		if answer.Created {
			continue // its revision says nothing about what has been told
		}
		after = reached(answer)
		h.add(after, e.events(answer.Events)...)
	}
}

// next waits for an answer. It is errBack when etcd is set back.
func next(ctx context.Context, answers clientv3.WatchChan, back <-chan struct{}) (clientv3.WatchResponse, error) {
	select {
	case answer, ok := <-answers:
		if !ok {
			return answer, cmp.Or(ctx.Err(), errWatchEnded)
		}
		return answer, answer.Err()
	case <-back:
		return clientv3.WatchResponse{}, errBack
	}
}

// reached is the revision up to which all is told. That of the head may be ahead of the events, when there are more to
// come.
func reached(answer clientv3.WatchResponse) int64 {
	if n := len(answer.Events); n > 0 {
		return answer.Events[n-1].Kv.ModRevision
	}
	return answer.Header.Revision
}

// events have the revision up to which all is told: the last one of several in a revision reaches it, such as those of a
// lease's end.
func (e *etcd) events(from []*clientv3.Event) []Event {
	events := make([]Event, 0, len(from))
	for i, one := range from {
		event := Event{Type: Put, Entry: e.entry(one.Kv), Revision: one.Kv.ModRevision}
		if one.Type == clientv3.EventTypeDelete {
			event.Type = Deleted
		}
		if i+1 < len(from) && from[i+1].Kv.ModRevision == event.Revision {
			event.Revision--
		}
		events = append(events, event)
	}
	return events
}
