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
	Created   time.Time
}
