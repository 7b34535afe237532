package multipool

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
)

// session is this agent's session in the store. When two agents have one key they contest it, and neither gives out
// addresses.
type session struct {
	*common

	connected bool            // the store has the node's record and this session, and the blocks were reconciled
	current   cluster.Session // as it is in the store
	proposed  string          // ID of the session, before it is in the store
	contested error           // another machine has the node's key
}

// errReplaced is returned when the store has the session of another agent.
var errReplaced = fault.New(fault.Unavailable, "another session has this node's name")

// reconnect makes the next round read the node's record and session and reconcile its blocks.
func (s *session) reconnect() { s.connected = false }

// begin writes this agent's session, unless another agent has written one meanwhile. otherOwners lists the nodes that
// the first session of a node names, see [cluster.Session].OtherOwners.
func (s *session) begin(ctx context.Context, otherOwners func(context.Context) ([]string, error)) error {
	ck := s.checkpoint
	now, err := s.backend.Sessions.Get(ctx, ck.Node)
	if err != nil && !errors.Is(err, cluster.ErrNotFound) {
		return fmt.Errorf("read the session of node %s: %w", ck.Node, err)
	}
	own := s.current.ID
	if err == nil && slices.Contains(ck.Sessions, now.ID) && now.Writes < ck.Writes { // before the next write hides it
		if err := s.history.reportLost(ctx, "the session of node "+ck.Node.String()+" is older than its last write"); err != nil {
			return err
		}
	}
	switch {
	case err != nil: // none yet, or the store has lost it
		if now.OtherOwners, err = otherOwners(ctx); err != nil {
			return err
		}
	case now.Contested != "":
		return s.contest(fmt.Sprintf("sessions %s and %s contest it", now.ID, now.Contested))
	case own != "" && now.ID == own:
		s.current = now
		s.endContest()
		return nil
	case !slices.Contains(ck.Sessions, now.ID) && len(ck.Sessions) > 0:
		contested := now
		contested.Contested = ck.Sessions[len(ck.Sessions)-1]
		_, err := s.backend.Sessions.Put(ctx, contested)
		return errors.Join(s.contest(fmt.Sprintf("session %s has replaced its own", now.ID)), err)
	}
	return s.replace(ctx, now)
}

// replace writes a session in place of the store's.
func (s *session) replace(ctx context.Context, now cluster.Session) error {
	ck := s.checkpoint
	before := slices.ContainsFunc(ck.Sessions, func(id string) bool { return id != s.proposed })
	another := now.ID != "" && now.Boot != ck.boot // perhaps of a machine whose disk, or only whose key, was copied here
	takesOver := another || before && ck.rebooted
	if !slices.Contains(ck.Sessions, s.proposed) || s.proposed == s.current.ID {
		s.proposed = rand.Text()
		ck.Sessions = appendLast(ck.Sessions, s.proposed, maxSessions)
	}
	next := cluster.Session{
		Node: ck.Node, ID: s.proposed, Boot: ck.boot, Contact: time.Now().UTC(),
		Recovery: now.Recovery, OtherOwners: now.OtherOwners, Writes: max(now.Writes, ck.Writes) + 1, Version: now.Version,
	}
	if err := ck.save(); err != nil {
		return err
	}
	written, err := s.backend.Sessions.Put(ctx, next)
	if err != nil {
		return fmt.Errorf("begin the session of node %s: %w", ck.Node, err)
	}
	ck.Writes, ck.changed = written.Writes, true
	if takesOver {
		if written, err = s.awaitContest(ctx, written); err != nil {
			return err
		}
	}
	s.current = written
	s.endContest()
	return nil
}

// awaitContest waits Config.ContestTime: within that time an agent on another machine with a copy of this disk sees
// that its session was replaced, unless it is cut off from the store.
func (s *session) awaitContest(ctx context.Context, written cluster.Session) (now cluster.Session, err error) {
	for end := time.Now().Add(s.cfg.ContestTime); ; {
		if err := task.Sleep(ctx, min(s.cfg.SearchTime, s.cfg.ContestTime)/4); err != nil {
			return now, err
		}
		now, err = s.backend.Sessions.Get(ctx, written.Node)
		switch {
		case err != nil:
			return now, fmt.Errorf("read the session of node %s: %w", written.Node, err)
		case now.Contested != "":
			return now, s.contest(fmt.Sprintf("sessions %s and %s contest it", now.ID, now.Contested))
		case now.ID != written.ID:
			return now, errReplaced
		case time.Now().After(end):
			return now, nil
		}
	}
}

// contest stops giving out addresses: another machine has the key, and may give out the same ones.
func (s *session) contest(why string) error {
	id := s.checkpoint.Node
	err := fmt.Errorf("%w, %s: %s; a disk was copied: remove %s in %s on the copy and restart its agent, then run %s %s --incarnation %s",
		ErrContested, id, why, keyFile, s.cfg.Dir, s.backend.Command("node reset"), id.Name, id.Key)
	if s.contested == nil {
		s.log.Error("this node gives out no address", "error", err)
	}
	s.contested = err
	s.addresses.Suspend(err)
	if s.checkpoint.Contested != why {
		s.checkpoint.Contested = why
		return errors.Join(err, s.checkpoint.save())
	}
	return err
}

// endContest gives out addresses again.
func (s *session) endContest() {
	if s.contested != nil {
		s.log.Info("this node gives out addresses again: nobody contests its key")
	}
	s.contested = nil
	s.checkpoint.changed = s.checkpoint.changed || s.checkpoint.Contested != ""
	s.checkpoint.Contested = ""
	s.addresses.Suspend(nil)
}

func (s *session) update(ctx context.Context, change func(next *cluster.Session)) error {
	next := s.current
	change(&next)
	next.Writes = max(next.Writes, s.checkpoint.Writes) + 1
	next, err := s.backend.Sessions.Put(ctx, next)
	if err != nil {
		s.reconnect()
		return err
	}
	s.current = next
	s.checkpoint.Writes, s.checkpoint.changed = next.Writes, true
	return nil
}

// verify reads the session again after a claim.
func (s *session) verify(ctx context.Context) error {
	if now, err := s.backend.Sessions.Get(ctx, s.checkpoint.Node); err != nil || now.ID != s.current.ID {
		return errors.Join(err, errReplaced)
	}
	return nil
}

// changed reports whether the store has a session of this node that this agent has not written. first is true for the
// first snapshot of the watch.
func (s *session) changed(change cluster.Change[cluster.Session], first bool) bool {
	now := change.Item
	if change.Kind == cluster.Snapshot {
		if len(change.All) == 1 {
			now = change.All[0]
		}
		own := now.ID == "" || slices.Contains(s.checkpoint.Sessions, now.ID)
		if first && own && now.Contested == "" {
			return false
		}
	}
	return s.current.ID != "" && (now.ID != s.current.ID || now.Contested != "")
}
