package control

import (
	"context"
	"errors"

	"porin.dev/porin/cells/policy"
)

// TakeNames implements [policy.NameKeeper]. A proxy that does not answer has to connect again.
func (r *Remote) TakeNames(ctx context.Context) {
	r.mu.Lock()
	r.taking = true
	s := r.current
	r.mu.Unlock()
	if s != nil {
		r.takeNames(ctx, s)
	}
}

// takeNamesLater takes names that the proxy has learned, if they were not before: not until policies are about to be written.
func (r *Remote) takeNamesLater(s *session) {
	r.mu.Lock()
	taking := r.taking
	r.mu.Unlock()
	if taking {
		s.background(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, greetTimeout)
			defer cancel()
			r.takeNames(ctx, s)
		})
	}
}

// KeepNames implements [policy.NameKeeper].
func (r *Remote) KeepNames(c policy.NameClasses, inForce uint32) {
	classFiles(r.cfg.Socket, r.log).KeepNames(c, inForce)
}

// takeNames has the names be known that the proxy has learned.
func (r *Remote) takeNames(ctx context.Context, s *session) {
	var answer journalContents
	_, err := s.peer.call(ctx, methodTakeNames, struct{}{}, &answer)
	if err == nil {
		r.replay(s, answer)
		return
	}
	if !errors.Is(err, errPeerGone) {
		r.log.Warn("what the proxy has learned of names is taken over when it connects next", "error", err)
		_ = s.peer.wire.close()
	}
}

// replay has the names be known that the proxy has learned.
func (r *Remote) replay(s *session, l journalContents) {
	if len(l.Learned) == 0 {
		return
	}
	r.names.Replay(l.Learned)
	s.background(func(ctx context.Context) { r.finishReplay(ctx, s, l.Mark) })
}

// finishReplay has the proxy forget what it has learned, when that is in the datapath and outlives the agent.
func (r *Remote) finishReplay(ctx context.Context, s *session, mark uint64) {
	err := r.names.FinishReplay(ctx)
	if err == nil {
		_, err = s.peer.call(ctx, methodReplayed, replayed{mark}, nil)
	}
	if err != nil && ctx.Err() == nil {
		r.log.Warn("what the proxy has learned of names without the agent is taken over when it connects next", "error", err)
	}
}
