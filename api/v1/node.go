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
	// LastContact is when the node's agent last started, or wrote its blocks in a recovery. A running agent does not renew
	// it, so an old time does not mean that the node is gone.
	LastContact time.Time    `json:"lastContact,omitzero"`
	Contested   bool         `json:"contested,omitempty"` // two machines have its key
	Addresses   []netip.Addr `json:"addresses,omitempty"` // other nodes reach it by these
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
	// MachineIsOff says that the machine is off and will not come back. Reservations on its disk are lost.
	MachineIsOff bool `json:"machineIsOff,omitempty"`
}

// NodeReset is the body of POST /v1/node/{name}/reset.
type NodeReset struct {
	Key string `json:"key,omitempty"` // needed when the name has several incarnations
}

// Recovery says whether the cluster recovers from a store that was rolled back. Nodes are NAME/KEY.
type Recovery struct {
	UnderWay bool      `json:"underWay"`
	Began    time.Time `json:"began,omitzero"`
	Reason   string    `json:"reason,omitempty"`
	// Requested is that one was asked for while the store is away: the agent begins it when it reaches the store, before
	// anything else. Nothing else is known then.
	Requested bool            `json:"requested,omitempty"`
	Unwritten []UnwrittenNode `json:"unwritten"` // nodes that have not written their blocks since it began
}

// UnwrittenNode is a node that has not written its blocks since a recovery began.
type UnwrittenNode struct {
	Node string `json:"node"`
	// Conflicts are the owners of other blocks with addresses in use there: its own blocks are not complete before the
	// pods are gone that use them.
	Conflicts []string `json:"conflicts,omitempty"`
}

// RecoveryRequest is the body of POST /v1/recovery: begin or end.
type RecoveryRequest struct {
	Begin bool `json:"begin,omitempty"`
	End   bool `json:"end,omitempty"`
	Force bool `json:"force,omitempty"` // end it although nodes have not written their blocks
}
