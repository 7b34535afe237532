package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// NodeID is one incarnation of a node: a machine that is replaced under the same name is another one.
type NodeID struct {
	Name string `json:"name"` // the node's name, as Kubernetes has it
	Key  string `json:"key"`  // random, on the node's disk
}

// String is NAME/KEY.
func (id NodeID) String() string { return id.Name + "/" + id.Key }

// ParseNodeID is the reverse of [NodeID.String].
func ParseNodeID(text string) (id NodeID, err error) {
	var ok bool
	if id.Name, id.Key, ok = strings.Cut(text, "/"); !ok {
		return id, fmt.Errorf("node %.64q: want NAME/KEY", text)
	}
	return id, id.Validate()
}

// Validate reports a name or a key that no node has.
func (id NodeID) Validate() error {
	if id.Name == "" || len(id.Name) > maxNodeName || strings.ContainsAny(id.Name, "/ \n") {
		return fmt.Errorf("node name %.64q: want 1 to %d characters and no slash", id.Name, maxNodeName)
	}
	if !isKey(id.Key) {
		return errors.New("node key: want " + fmt.Sprint(keyLength) + " characters of a-z and 2-7")
	}
	return nil
}

const maxNodeName = 253

// NodeState says whether a node may claim blocks.
type NodeState string

// The states of a node.
const (
	NodeActive NodeState = "active"
	// NodeReleasing is the state while an administrator deletes the node, whose machine is off: it claims nothing, and its
	// blocks are deleted.
	NodeReleasing NodeState = "releasing"
)

// Node is one incarnation of a node.
type Node struct {
	ID    NodeID    `json:"id"`
	State NodeState `json:"state"`
	// MachineID is a hash of the machine's ID; "" when it has none that outlives a boot. Clones of an image share it,
	// so it identifies nothing; a difference after a boot shows a disk that was copied or moved.
	MachineID string    `json:"machineID,omitempty"`
	Created   time.Time `json:"created"`
	// NodeUID is the UID of the Kubernetes Node that the agent runs on; "" without Kubernetes.
	NodeUID string `json:"nodeUID,omitempty"`

	Deleting bool    `json:"-"`
	Version  Version `json:"-"`
}

// NodeDeleted reports whether the node was deleted. A record that is just missing may be back soon.
func NodeDeleted(ctx context.Context, b Backend, id NodeID) (bool, error) {
	if _, err := b.Nodes.Get(ctx, id); err == nil || errors.Is(err, ErrUnreadable) {
		return false, nil
	} else if !errors.Is(err, ErrNotFound) {
		return false, err
	}
	info, _, err := b.Info.Get(ctx)  // read after the node: who deletes a node says so before
	if errors.Is(err, ErrNotFound) { // there are no agents yet
		return false, nil
	}
	return slices.Contains(info.Removed, id.Key), err
}

// Session is the agent of a node: the process that may give out addresses of its blocks.
type Session struct {
	Node NodeID `json:"node"`
	ID   string `json:"id"`   // random for each start of an agent
	Boot string `json:"boot"` // boot ID of the machine
	// Writes counts the writes of this record by the node. A record with a lower count than the node remembers is of an
	// earlier time: the store was rolled back.
	Writes uint64 `json:"writes,omitempty"`
	// Contact is when the agent started, or wrote its claims in a recovery. A running agent does not renew it.
	Contact time.Time `json:"contact"`
	// Contested is the ID of another session that found itself replaced while it was running: two machines have the same
	// key.
	Contested string `json:"contested,omitempty"`
	// Recovery is the ID of the last recovery in which the node has written its claims.
	Recovery string `json:"recovery,omitempty"`
	// OtherOwners are the nodes, as NAME/KEY, that own blocks with addresses that this node uses: if they were
	// deleted, those could be given out a second time. An owner that cannot be read is there as words.
	OtherOwners []string `json:"otherOwners,omitempty"`

	Deleting bool    `json:"-"`
	Version  Version `json:"-"`
}
