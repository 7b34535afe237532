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
	LastContact time.Time   `json:"lastContact,omitzero"`
	Contested   bool        `json:"contested,omitempty"`  // two machines have its key
	ReportedBy  string      `json:"reportedBy,omitempty"` // the node that has known it and found its record missing
	Blocks      []NodeBlock `json:"blocks"`
}

// NodeBlock is a block that a node owns.
type NodeBlock struct {
	CIDR netip.Prefix `json:"cidr"`
	Pool string       `json:"pool"`
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

// Recovery says whether the cluster recovers from a store that has gone back. Nodes are NAME/KEY.
type Recovery struct {
	UnderWay bool      `json:"underWay"`
	Epoch    uint64    `json:"epoch"` // counts the recoveries that have begun
	Began    time.Time `json:"began,omitzero"`
	Reason   string    `json:"reason,omitempty"`
	Waiting  []string  `json:"waiting"`  // nodes that have not confirmed their blocks
	Excluded []string  `json:"excluded"` // nodes that are not waited for
}

// RecoveryRequest is the body of POST /v1/recovery: one of the two.
type RecoveryRequest struct {
	Begin   bool   `json:"begin,omitempty"`
	Exclude string `json:"exclude,omitempty"` // NAME/KEY
}
