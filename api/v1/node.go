package v1

import (
	"net/netip"
	"time"
)

// Node is one incarnation of a node of the cluster: a machine that is replaced under the same name is another one.
type Node struct {
	Name    string    `json:"name"`
	Key     string    `json:"key"`   // random, on the node's disk
	State   string    `json:"state"` // "active", "releasing", or "unreadable" as its record is; "" when only blocks of it are left
	Created time.Time `json:"created,omitzero"`
	// LastContact is when the node's agent last started, or confirmed its blocks in a recovery. A running agent does not renew it, so an old
	// time does not mean that the node is gone.
	LastContact time.Time    `json:"lastContact,omitzero"`
	Contested   bool         `json:"contested,omitempty"`  // two machines have its key
	ReportedBy  string       `json:"reportedBy,omitempty"` // the node that has known it and found its record missing
	Addresses   []netip.Addr `json:"addresses,omitempty"`  // by which other nodes reach it
	Blocks      []NodeBlock  `json:"blocks"`
}

// NodeBlock is a block that a node owns.
type NodeBlock struct {
	CIDR netip.Prefix `json:"cidr"`
	Pool string       `json:"pool,omitempty"` // "" of a node with prefixes of its own
}

// NodeDeletion is the body of POST /v1/node/{name}/delete.
type NodeDeletion struct {
	Key string `json:"key,omitempty"` // needed when the name has several incarnations
	// MachineIsOff says that the machine is off and will not come back: its agent is not asked, and reservations on its disk are lost.
	MachineIsOff bool `json:"machineIsOff,omitempty"`
}

// NodeReset is the body of POST /v1/node/{name}/reset.
type NodeReset struct {
	Key string `json:"key,omitempty"` // needed when the name has several incarnations
}

// Recovery says whether the cluster recovers from a store that was rolled back. Nodes are NAME/KEY.
type Recovery struct {
	UnderWay bool      `json:"underWay"`
	Epoch    uint64    `json:"epoch"` // counts the recoveries that have begun
	Began    time.Time `json:"began,omitzero"`
	Reason   string    `json:"reason,omitempty"`
	// Requested is that one was asked for while the store is away: the agent begins it when it reaches the store, before anything else. Nothing
	// else is known then.
	Requested bool          `json:"requested,omitempty"`
	Waiting   []Unconfirmed `json:"waiting"`  // nodes that have not confirmed their blocks
	Excluded  []string      `json:"excluded"` // nodes that are not waited for
	// LostPools are pools that the store has lost, or changes of which it has lost, as the asked agent has seen them. They are there after the
	// recovery, too, until somebody creates or changes the pool.
	LostPools []LostPool `json:"lostPools,omitempty"`
}

// LostPool is a pool that the store has lost, or a change of which it has lost.
type LostPool struct {
	Name    string `json:"name"`
	Gone    bool   `json:"gone,omitempty"` // the pool itself is gone
	Command string `json:"command"`        // of porin, which makes it what it was
}

// Unconfirmed is a node that has not confirmed its blocks.
type Unconfirmed struct {
	Node string `json:"node"`
	// Conflicts are the nodes that own blocks of which it has addresses in use: it confirms nothing before the pods are gone that use them.
	Conflicts []string `json:"conflicts,omitempty"`
}

// RecoveryRequest is the body of POST /v1/recovery: one of the two.
type RecoveryRequest struct {
	Begin   bool   `json:"begin,omitempty"`
	Exclude string `json:"exclude,omitempty"` // NAME/KEY
}
