package endpointmanager

import (
	"net/netip"
	"time"
)

// Spec is what the caller of an ADD asked for. It never changes during an endpoint's life.
type Spec struct {
	Attachment Attachment
	Network    string // name of the CNI network configuration
	Pod        Pod
	NetNS      string    // path of the container's namespace, for people; nobody opens it
	Host       Interface // in the node's namespace
	Container  Interface // in the container; its Index is 0
	Requested  Addresses // these and no others; a zero family gets any
	// ExternalIPAM says that another IPAM gave Requested: Porin neither takes nor releases them.
	ExternalIPAM bool
	// Began is when the caller began, on CLOCK_BOOTTIME; zero when it did not say.
	Began time.Duration
}

// Pod says whose endpoint it is. All parts are empty outside Kubernetes.
type Pod struct{ Namespace, Name, UID string }

// String is "namespace/name", or "" when there is no pod.
func (p Pod) String() string {
	if p == (Pod{}) {
		return ""
	}
	return p.Namespace + "/" + p.Name
}

// Interface is one end of a veth pair.
type Interface struct {
	Name  string
	Index int
	MAC   MAC
}

// Addresses holds at most one address a family; the zero netip.Addr stands for none.
type Addresses struct{ IPv4, IPv6 netip.Addr }

// List returns the addresses that there are, IPv4 first.
func (a Addresses) List() []netip.Addr {
	var list []netip.Addr
	for _, addr := range []netip.Addr{a.IPv4, a.IPv6} {
		if addr.IsValid() {
			list = append(list, addr)
		}
	}
	return list
}

// Endpoint is what Porin manages for one attachment. It is a value: a copy stays as it was, and two can be compared
// with ==.
type Endpoint struct {
	ID        uint16 // unique on the node while the endpoint lives; 0 before it has one
	Spec      Spec
	State     State
	Addresses Addresses // as ipam gave them
	Created   time.Time
}
