package store

import (
	"cmp"
	"context"
	"errors"
	"sync"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
)

// horizon is how far etcd has come, as far as its answers say. Each change takes it further; when a later question is
// answered from before it, etcd was set back, as from a backup: revisions are given a second time, and nothing of what
// watches have told need hold. A watch that goes on after a revision that is not there yet would be told nothing, or a part.
//
// That it has been overtaken again before anybody asked is told by the term, if at all: each election makes it grow, and a
// restored cluster begins anew.
type horizon struct {
	mu             sync.Mutex // guards the fields below
	revision, term int64
	back           chan struct{} // closed when it was set back
}

// place is a horizon at a time.
type place struct{ revision, term int64 }

func (p place) beyond(h *etcdserverpb.ResponseHeader) bool {
	return p.revision > h.Revision || p.term > int64(h.RaftTerm)
}

func newHorizon() *horizon { return &horizon{back: make(chan struct{})} }

// now is asked before a question.
func (h *horizon) now() place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return place{h.revision, h.term}
}

// setBack returns what is closed when etcd is found to have been set back from now on.
func (h *horizon) setBack() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.back
}

// saw takes in the answer to a question that was asked at a place. A quorum must stand behind it: a member alone may lag.
func (h *horizon) saw(asked place, answer *etcdserverpb.ResponseHeader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if asked.beyond(answer) {
		h.revision, h.term = answer.Revision, int64(answer.RaftTerm)
		close(h.back)
		h.back = make(chan struct{})
		return
	}
	h.revision, h.term = max(h.revision, answer.Revision), max(h.term, int64(answer.RaftTerm))
}

// behind says whether etcd was set back, when a member has not come to a revision, or the member lags.
func (e *etcd) behind(ctx context.Context, revision int64) error {
	_, now, err := e.pages(ctx, e.cfg.Prefix+probeKey)
	if err == nil && now < revision {
		return errBack
	}
	return cmp.Or(err, errGone)
}

// probe asks etcd, with a quorum, when a member that may lag has given an answer from before the horizon.
func (e *etcd) probe(ctx context.Context, asked place, answer *etcdserverpb.ResponseHeader) error {
	if answer == nil || !asked.beyond(answer) {
		return nil
	}
	_, err := e.get(ctx, probeKey)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}
