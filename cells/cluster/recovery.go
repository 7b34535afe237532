package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Recovery is under way after the store was rolled back, as by a restore from a backup: no node claims a new block
// until every node has confirmed the ones that it uses.
type Recovery struct {
	// ID is random: after another restore a recovery of the same epoch may begin a second time.
	ID     string    `json:"id"`
	Began  time.Time `json:"began"`
	Reason string    `json:"reason"`
	// Excluded are nodes that an administrator does not wait for, as NAME/KEY.
	Excluded []string `json:"excluded,omitempty"`
}

// Unconfirmed is a node that a recovery waits for.
type Unconfirmed struct {
	Node NodeID
	// OtherOwners are the nodes that own blocks of which it has addresses in use, as NAME/KEY: it confirms nothing
	// before that is over.
	OtherOwners []string
}

// UnconfirmedNodes lists the nodes that a recovery waits for. It waits for one whose record cannot be read, too, which
// can be excluded by the name that the list has.
func UnconfirmedNodes(ctx context.Context, b Backend, info ClusterInfo) (waiting []Unconfirmed, err error) {
	if info.Recovery == nil {
		return nil, nil
	}
	sessions := map[NodeID]Session{}
	for s, err := range Readable(b.Sessions.All(ctx)) {
		if err != nil {
			return nil, fmt.Errorf("list the sessions: %w", err)
		}
		sessions[s.Node] = s
	}
	for n, err := range b.Nodes.All(ctx) {
		if err != nil && !errors.Is(err, ErrUnreadable) {
			return nil, fmt.Errorf("list the nodes: %w", err)
		}
		if n.ID == (NodeID{}) {
			continue // it has no name of a node's record
		}
		if s := sessions[n.ID]; !s.HasConfirmed(info) && !slices.Contains(info.Recovery.Excluded, n.ID.String()) {
			waiting = append(waiting, Unconfirmed{n.ID, s.OtherOwners})
		}
	}
	return waiting, nil
}

// HasConfirmed reports whether the node has confirmed its blocks in the last recovery, which may be under way.
func (s Session) HasConfirmed(info ClusterInfo) bool {
	return s.Confirmed >= info.Epoch && (info.Recovery == nil || s.Recovery == info.Recovery.ID)
}
