package v1

import (
	"net/netip"
	"time"
)

// The statuses of a [NodeHealth] and a [HealthEndpoint].
const (
	HealthOK      = "ok"
	HealthFailing = "failing"
	HealthUnknown = "unknown" // nothing was probed yet
	HealthOff     = "off"     // of an endpoint that the node is not to have
)

// ClusterHealth says which other nodes this one reaches: GET /v1/health.
type ClusterHealth struct {
	Node     string         `json:"node"` // this one
	Endpoint HealthEndpoint `json:"endpoint"`
	// Interval is the time, in nanoseconds, in which each of the other nodes is probed once, or Sample of them.
	Interval time.Duration `json:"interval"`
	Sample   int           `json:"sample"`
	// Bounds are the upper bounds of each histogram's buckets, in nanoseconds; the last bucket has none.
	Bounds []time.Duration `json:"bounds"`
	Nodes  []NodeHealth    `json:"nodes"` // by name
}

// HealthEndpoint is the health endpoint of this node.
type HealthEndpoint struct {
	Status    string     `json:"status"` // "ok", "failing", "unknown" or "off"
	ID        uint16     `json:"id,omitempty"`
	Addresses Addresses  `json:"addresses,omitzero"`
	Checked   *time.Time `json:"checked,omitempty"` // when it was checked last
	Error     string     `json:"error,omitempty"`   // of that
}

// NodeHealth is how another node is, as this one sees it.
type NodeHealth struct {
	Name   string        `json:"name"`
	Key    string        `json:"key"`    // of the incarnation
	Status string        `json:"status"` // "ok", "failing" or "unknown"
	Faults []HealthFault `json:"faults,omitempty"`
	Probes []HealthProbe `json:"probes"`
}

// HealthFault names what of the way to a node is at fault.
type HealthFault struct {
	Part   string `json:"part"` // "node", "tunnel", "endpoint-path", "policy" or "responder"
	Detail string `json:"detail"`
}

// HealthProbe is one way to reach a node.
type HealthProbe struct {
	Target    string        `json:"target"`   // "node" or "endpoint"
	Protocol  string        `json:"protocol"` // "icmp" or "http"
	Family    string        `json:"family"`   // "ipv4" or "ipv6"
	Address   netip.Addr    `json:"address"`
	OK        bool          `json:"ok"`
	LastProbe *time.Time    `json:"lastProbe,omitempty"`
	LastSeen  *time.Time    `json:"lastSeen,omitempty"`  // when it answered last
	Failures  int           `json:"failures,omitempty"`  // of the last probes, in a row
	Latency   time.Duration `json:"latency,omitempty"`   // of the last answer, in nanoseconds
	Histogram []uint32      `json:"histogram,omitempty"` // answers by latency
	Error     string        `json:"error,omitempty"`     // of the last probe
}
