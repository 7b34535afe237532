package v1

import (
	"net/netip"
	"time"
)

// Status is the answer of GET /v1/status.
type Status struct {
	Version   string         `json:"version"`
	Node      string         `json:"node"`
	PID       int            `json:"pid"`
	Started   time.Time      `json:"started"`
	Ready     bool           `json:"ready"`
	Endpoints map[string]int `json:"endpoints"` // by state
	Health    Health         `json:"health"`
	Restored  Restored       `json:"restored"`
	Held      Held           `json:"held"`
	Findings  Findings       `json:"findings,omitzero"`
	Datapath  Datapath       `json:"datapath"`
	Policy    PolicyStatus   `json:"policy"`
	Proxy     ProxyStatus    `json:"proxy"`
	// Kubernetes is nil without a Kubernetes API.
	Kubernetes *KubernetesStatus `json:"kubernetes,omitempty"`
	// Recovery is nil when no recovery of the cluster's store is under way, as far as this node knows.
	Recovery *RecoveryStatus `json:"recovery,omitempty"`
	// Conflicts are the blocks with addresses in use here that another node owns.
	Conflicts []BlockConflict `json:"conflicts,omitempty"`
	// Network is this node's place among the others.
	Network NetworkStatus `json:"network"`
	// Resources are what an ADD needs.
	Resources []Resource `json:"resources"`
}

// Findings are what the doctor knows from its last examination.
type Findings struct {
	Count int       `json:"count"`
	First []Finding `json:"first,omitempty"` // up to 20, by kind
}

// Restored is the report of the agent's last start: the objects of its earlier life.
type Restored struct {
	Adopted  int `json:"adopted"`  // endpoints taken over as they were
	Replaced int `json:"replaced"` // endpoints brought back with restored parts
	Undone   int `json:"undone"`   // attachments that were half made, deleted meanwhile, or could not be brought back
	// Duration is how long the restore took, in nanoseconds.
	Duration time.Duration `json:"duration"`
	// Reasons has an entry for each endpoint that was replaced or undone, for the first 100.
	Reasons []RestoredEndpoint `json:"reasons,omitempty"`
	// Removed lists objects with Porin's mark and without an owner, the first 100.
	Removed []string `json:"removed,omitempty"`
}

// RestoredEndpoint is why an endpoint was not taken over as it was.
type RestoredEndpoint struct {
	Endpoint string   `json:"endpoint"` // containerID:ifname
	Outcome  string   `json:"outcome"`  // "replaced" or "undone"
	Reasons  []string `json:"reasons"`
}

// Held are the attachments that the agent's start could not explain: it has neither brought them back nor removed them,
// and does not give out their addresses. A DEL, a newer ADD of the pod or POST /v1/restore/accept ends the hold of one.
type Held struct {
	Count int `json:"count"`
	// Endpoints are the first 100 of them.
	Endpoints []HeldEndpoint `json:"endpoints,omitempty"`
}

// HeldEndpoint is why an attachment is held.
type HeldEndpoint struct {
	Endpoint  string    `json:"endpoint"` // containerID:ifname; where that is not known, the name of the host end or link/INDEX
	Link      string    `json:"link"`     // name of the host end
	Addresses Addresses `json:"addresses"`
	// Reason is "link-lost" (the ledger has it, its link is gone), "not-on-record" (its link is there, the ledger does not
	// have it) or "restore-failed" (it and most others could not be brought back; the next start tries again).
	Reason string `json:"reason"`
	Detail string `json:"detail"`
}

// AcceptRequest is the body of POST /v1/restore/accept: the held attachments are gone, and shall be removed.
type AcceptRequest struct {
	// Endpoint restricts it to one, as in [HeldEndpoint], or as a beginning of its container ID that fits one alone; "" is
	// all.
	Endpoint string `json:"endpoint,omitempty"`
}

// Datapath says what is loaded in the kernel.
type Datapath struct {
	BPFRoot  string    `json:"bpfRoot"` // folder of the pinned programs and maps
	Digest   string    `json:"digest"`  // of the BPF object and its configuration
	Adopted  bool      `json:"adopted"` // the programs were there when the agent started, and were not loaded again
	Programs []Program `json:"programs"`
	// Missing names what this kernel lacks and what Porin does without it.
	Missing []string `json:"missing,omitempty"`
	// Unmanaged is left out while it is all zero.
	Unmanaged *Unmanaged `json:"unmanaged,omitempty"`
}

// Unmanaged counts decisions of policies, since the map of the counts was made, about unknown pods of other nodes.
type Unmanaged struct {
	Passed uint64 `json:"passed"` // to let one open a connection to a restricted pod of this node
	Denied uint64 `json:"denied"` // in either direction
}

// ProxyStatus says how the proxy is, which applies layer 7 rules.
type ProxyStatus struct {
	InUse       bool   `json:"inUse"`               // packets can get to it: there are layer 7 rules, or there were until a moment ago
	RuleSets    int    `json:"ruleSets"`            // sets of layer 7 rules that it has
	Connections int    `json:"connections"`         // that go through it
	Error       string `json:"error,omitempty"`     // why it does not work, or not as it should
	External    bool   `json:"external,omitempty"`  // it is porin-proxy, a process of its own; the fields below are of that
	Connected   bool   `json:"connected,omitempty"` // it is there
	PID         int    `json:"pid,omitempty"`
	Version     string `json:"version,omitempty"`
	Previous    int    `json:"previous,omitempty"` // processes that were replaced, and whose requests have not ended
}

// RecoveryStatus is what the node knows of a recovery of the cluster's store. GET /v1/recovery reads the store, and
// says which nodes have not written their blocks.
type RecoveryStatus struct {
	// Requested says that an administrator has asked this node for one: it begins when the store answers. What else is
	// here is of one before.
	Requested bool      `json:"requested,omitempty"`
	UnderWay  bool      `json:"underWay"`
	Began     time.Time `json:"began,omitzero"`
	Reason    string    `json:"reason,omitempty"`
	Unwritten bool      `json:"unwritten,omitempty"` // this node has not written its blocks since it began
}

// BlockConflict is a block with addresses in use on this node that another node owns.
type BlockConflict struct {
	CIDR  netip.Prefix `json:"cidr"`
	Pool  string       `json:"pool"`
	Owner string       `json:"owner,omitempty"` // NAME/KEY; "" when the block's record cannot be read
}

// Program is one loaded BPF program.
type Program struct {
	Name string `json:"name"`
	ID   uint32 `json:"id"`
	Tag  string `json:"tag"`
}
