package model

import "net/netip"

// EndpointKind is what an address belongs to.
type EndpointKind uint8

// The kinds. Policies apply to pods; the others are only peers, matched by address (and nodes by the node's labels).
const (
	World      EndpointKind = iota // not known in the cluster
	Host                           // this node
	RemoteNode                     // another node
	Health                         // a node's health endpoint
	Unmanaged                      // a pod that another network plugin manages
	Init                           // a pod whose labels are not known yet: all is denied to it
	Pod
)

// KindSet is a set of kinds.
type KindSet uint8

// KindsOf returns the set.
func KindsOf(kinds ...EndpointKind) (set KindSet) {
	for _, k := range kinds {
		set |= 1 << k
	}
	return set
}

// Has reports whether the kind is in the set.
func (s KindSet) Has(kind EndpointKind) bool { return s&(1<<kind) != 0 }

func (k EndpointKind) String() string {
	return name(k, "world", "host", "remote-node", "health", "unmanaged", "init", "pod")
}

// ServiceAccountLabel is a label of each pod of the Kubernetes API, with its service account, as Cilium's policies name
// it.
const ServiceAccountLabel = "io.cilium.k8s.policy.serviceaccount"

// Endpoint is a pod or node.
type Endpoint struct {
	Key  string // unique: the attachment of an endpoint of this node
	Kind EndpointKind
	// Local says that this node runs the pod, and so enforces the policies that select it.
	Local           bool
	Namespace       string
	Name            string            // of the pod, to be shown: policies do not see it
	NamespaceLabels map[string]string // all of them: kubernetes.io/metadata.name, too, which policies often name
	Labels          map[string]string // of the pod or node
	Addresses       []netip.Addr
	NamedPorts      []NamedPort
	// Audit says that no policy is in force for the endpoint: their decisions are only reported.
	Audit bool
}

// NamedPort is a port of a pod's containers. A name may stand for several ports.
type NamedPort struct {
	Name     string
	Protocol Protocol
	Number   uint16
}
