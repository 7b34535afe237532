package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Recovery is the mark that the store was rolled back, or will be, for example by a restore from a backup. While it
// stands no node claims a new block, and every node creates its own claims again. Only an administrator ends it.
type Recovery struct {
	ID     string    `json:"id"` // random: a backup may bring back an earlier mark
	Began  time.Time `json:"began"`
	Reason string    `json:"reason"`
}

// maxEnded bounds ClusterInfo.EndedRecoveries.
const maxEnded = 20

// EndRecovery removes the mark.
func (i *ClusterInfo) EndRecovery() {
	i.EndedRecoveries, i.Recovery = appendLast(i.EndedRecoveries, i.Recovery.ID, maxEnded), nil
}

// KnowsRecovery reports whether the recovery is under way, or has ended recently. It is true for "".
func (i *ClusterInfo) KnowsRecovery(id string) bool {
	return id == "" || i.Recovery != nil && i.Recovery.ID == id || slices.Contains(i.EndedRecoveries, id)
}

// LastRecovery is the ID of the recovery that began last; "" when none has.
func (i *ClusterInfo) LastRecovery() string {
	switch {
	case i.Recovery != nil:
		return i.Recovery.ID
	case len(i.EndedRecoveries) > 0:
		return i.EndedRecoveries[len(i.EndedRecoveries)-1]
	}
	return ""
}

// UnwrittenNode is a node that has not written its claims since the recovery began.
type UnwrittenNode struct {
	Node NodeID
	// OtherOwners are the owners, as NAME/KEY, of other blocks with addresses in use there: its own claims are not
	// complete before that is over.
	OtherOwners []string
}

// UnwrittenNodes lists the nodes in the store that have not written their claims since the recovery began. It lists a
// node whose record cannot be read, too.
func UnwrittenNodes(ctx context.Context, b Backend, info ClusterInfo) (list []UnwrittenNode, err error) {
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
		if s := sessions[n.ID]; !s.HasWritten(info) {
			list = append(list, UnwrittenNode{n.ID, s.OtherOwners})
		}
	}
	return list, nil
}

// HasWritten reports whether the node has written its claims since the recovery began; true when none is under way.
func (s Session) HasWritten(info ClusterInfo) bool {
	return info.Recovery == nil || s.Recovery == info.Recovery.ID
}
