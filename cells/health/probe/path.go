package probe

import (
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/cluster"
)

// Target is what of a node is probed.
type Target string

// The targets.
const (
	Node     Target = "node"     // one of its own addresses
	Endpoint Target = "endpoint" // its health endpoint
)

// Protocol is how it is probed.
type Protocol string

// The protocols.
const (
	ICMP Protocol = "icmp"
	HTTP Protocol = "http"
)

// Path is one way to reach a node.
type Path struct {
	Target   Target
	Protocol Protocol
	Family   cluster.Family
}

// pathCount is how many paths a node has at most.
const pathCount = 6

// Paths are all of them, in the order in which they are shown.
func Paths() [pathCount]Path {
	return [pathCount]Path{
		{Node, ICMP, cluster.IPv4},
		{Node, ICMP, cluster.IPv6},
		{Endpoint, ICMP, cluster.IPv4},
		{Endpoint, ICMP, cluster.IPv6},
		{Endpoint, HTTP, cluster.IPv4},
		{Endpoint, HTTP, cluster.IPv6},
	}
}

// addressOf is where the path leads; the zero Addr when the node has published no such address.
func (p Path) addressOf(n cluster.NodeNetwork) netip.Addr {
	addresses := n.Addresses
	if p.Target == Endpoint {
		addresses = n.Health
	}
	for _, addr := range addresses {
		if cluster.FamilyOf(addr) == p.Family {
			return addr
		}
	}
	return netip.Addr{}
}

// Bounds are the upper bounds of the latency histogram of a path; higher latencies are in one more bucket.
func Bounds() []time.Duration {
	return []time.Duration{
		100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond,
		5 * time.Millisecond, 10 * time.Millisecond, 25 * time.Millisecond, 100 * time.Millisecond,
	}
}

const bucketCount = 10

// State is what became of the probes of one path.
type State struct {
	Address   netip.Addr // the zero Addr: there is no such path
	LastProbe time.Time  // when the last probe ended; zero before the first
	LastSeen  time.Time  // when the last successful one ended; zero before the first
	Latency   time.Duration
	Failures  int // of the last probes, in a row
	Err       error
	Histogram [bucketCount]uint32 // of Latency, by [Bounds]
}

// Probed reports whether there is a result.
func (s State) Probed() bool { return !s.LastProbe.IsZero() }

// OK reports whether the last probe succeeded.
func (s State) OK() bool { return s.Probed() && s.Failures == 0 }

// Failing reports whether the last probe failed.
func (s State) Failing() bool { return s.Failures > 0 }

func (s *State) record(now time.Time, latency time.Duration, err error) {
	s.LastProbe, s.Err = now, err
	if err != nil {
		s.Failures++
		return
	}
	s.LastSeen, s.Latency, s.Failures = now, latency, 0
	bucket, _ := slices.BinarySearch(Bounds(), latency)
	s.Histogram[bucket]++
}
