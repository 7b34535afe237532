package endpointmanager

import (
	"net/netip"
	"time"
)

// Pod says whose endpoint it is. All parts are empty outside Kubernetes.
type Pod struct {
	Namespace, Name, UID string
	PriorityClass        string // by its name, when the caller of the ADD knows it
}

// String is "namespace/name", or "" when there is no pod.
func (p Pod) String() string {
	if p == (Pod{}) {
		return ""
	}
	return p.Namespace + "/" + p.Name
}

// LinkKind is the kind of an endpoint's link. The ledger keeps it with each endpoint.
type LinkKind string

// The kinds there are. Records of agents before this one have none, and mean LinkVeth.
const (
	LinkNone LinkKind = ""     // not made yet
	LinkVeth LinkKind = "veth" // a veth pair that the step link made
)

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
	Pool      string    // that they are of; "" when another IPAM gave them
	// IPAMResult is what a delegated IPAM plugin answered besides, an encoded [IPAMResult]; "" when none was asked.
	IPAMResult string
	// LinkKind says which step made the link, and takes it away again.
	LinkKind  LinkKind
	Host      Interface // in the node's namespace; the zero Interface before it is made
	Container Interface // in the container's namespace, with its index there
	MTU       int       // of both, in bytes
	Created   time.Time
	Renewed   bool `json:",omitempty"` // a later call for the same has been answered with it
}
