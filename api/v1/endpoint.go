package v1

import (
	"fmt"
	"net/netip"
	"time"
)

// EndpointRequest is the body of PUT /v1/endpoint/{containerID:ifname}. The container's network namespace comes with it
// as a file descriptor (SCM_RIGHTS), on the first byte of a connection of its own.
type EndpointRequest struct {
	// Network is the name of the CNI network configuration.
	Network string `json:"network,omitempty"`
	Pod     Pod    `json:"pod,omitzero"`
	// NetNS is the path of the container's network namespace. The agent keeps it for people and never opens it: it
	// enters the namespace by the descriptor.
	NetNS string `json:"netns,omitempty"`
	// MTU is the MTU of the container's interface, in bytes, from 1280 to 65535; 0 is the agent's choice, which fits on
	// the way to other nodes.
	MTU int `json:"mtu,omitempty"`
	// Bandwidth limits what the container sends and gets.
	Bandwidth Bandwidth `json:"bandwidth,omitzero"`
	// Pool is the name of the pool that addresses come from. When it is not there the agent's settings say which.
	Pool string `json:"pool,omitempty"`
	// Addresses asks for these very addresses, at most one a family; a family not named gets any.
	Addresses Addresses `json:"addresses,omitzero"`
	// Reservation is the token of a [Reservation] whose addresses the endpoint takes over. From then on they are as any
	// that it might have got: they are released with it, and also when it could not be created after all. A permanent
	// reservation keeps its addresses, and the endpoint uses them.
	Reservation string `json:"reservation,omitempty"`
	// ExternalIPAM says that Addresses were given by another IPAM: the agent neither takes nor releases them.
	ExternalIPAM bool `json:"externalIPAM,omitempty"`
	// PortMappings are ports of the node that lead to the container.
	PortMappings []PortMapping `json:"portMappings,omitempty"`
	// NoMasquerade has the container keep its address towards what is outside of the cluster.
	NoMasquerade bool `json:"noMasquerade,omitempty"`
	// Labels are the pod's, and NamespaceLabels its namespace's, for policies. Without them the pod has no labels. Of a
	// namespace the label kubernetes.io/metadata.name need not be given. When the endpoint is there already they replace
	// its labels, as in an [EndpointPatch]: labels that are not given stay.
	Labels          map[string]string `json:"labels,omitzero"`
	NamespaceLabels map[string]string `json:"namespaceLabels,omitzero"`
	// NamedPorts are the ports of its containers that have a name.
	NamedPorts []NamedPort `json:"namedPorts,omitzero"`
	// Audit lets packets pass that policies would deny the pod, and reports them. As with labels, an absent Audit changes
	// nothing.
	Audit *bool `json:"audit,omitempty"`
	// Began is when the caller began, in nanoseconds of CLOCK_BOOTTIME. Zero means now. An ADD that began before the DEL
	// of its attachment, or before the ADD of a newer container of its pod, is refused. A DEL takes it as the query
	// parameter "began", and spares an attachment that began later.
	Began int64 `json:"began,omitempty"`
}

// EndpointPatch is the body of PATCH /v1/endpoint/{id}. A given field replaces the endpoint's; a field that is not
// given stays. The answer is the endpoint, when the datapath enforces the policies that follow from it.
type EndpointPatch struct {
	Labels          map[string]string `json:"labels,omitzero"`
	NamespaceLabels map[string]string `json:"namespaceLabels,omitzero"`
	NamedPorts      []NamedPort       `json:"namedPorts,omitzero"`
	Audit           *bool             `json:"audit,omitempty"`
}

// NamedPort is a port of a pod that policies may name. A name may stand for several ports.
type NamedPort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol,omitempty"` // TCP, which it is when it is not there, UDP or SCTP
	Port     uint16 `json:"port"`
}

// PortMapping is a port of the node that leads to one of a container.
type PortMapping struct {
	// HostIP restricts it to one address of the node, or with 0.0.0.0 and :: to one family. Without it the port applies to
	// all addresses of the families that the container has.
	HostIP        netip.Addr `json:"hostIP,omitzero"`
	HostPort      uint16     `json:"hostPort"`
	ContainerPort uint16     `json:"containerPort"`
	Protocol      string     `json:"protocol,omitempty"` // TCP, which it is when it is not there, UDP or SCTP
}

// String is "TCP 192.0.2.1:8080 to 80", or "TCP 8080 to 80".
func (p PortMapping) String() string { return fmt.Sprintf("%s to %d", p.Host(), p.ContainerPort) }

// Host is the node's side of it: "TCP 192.0.2.1:8080", or "TCP 8080".
func (p PortMapping) Host() string {
	if !p.HostIP.IsValid() {
		return fmt.Sprintf("%s %d", p.Protocol, p.HostPort)
	}
	return fmt.Sprintf("%s %s", p.Protocol, netip.AddrPortFrom(p.HostIP, p.HostPort))
}

// The protocols of a [NamedPort] and a [PortMapping].
const (
	ProtocolTCP  = "TCP"
	ProtocolUDP  = "UDP"
	ProtocolSCTP = "SCTP"
)

// Endpoint is what the agent manages for one attachment.
type Endpoint struct {
	ID uint16 `json:"id"`
	// ContainerID and IfName are empty when the link's owner is unknown: then Host names the link.
	ContainerID string `json:"containerID"`
	IfName      string `json:"ifname"`
	// Kind is "health" for the node's health endpoint, which the agent makes itself. It is not there for a pod's.
	Kind string `json:"kind,omitempty"`
	// State is "ready", or where the endpoint is on the way there or to its end. In "held" the agent's start left it as it
	// was: see [Held].
	State     string    `json:"state"`
	Network   string    `json:"network,omitempty"`
	Pod       Pod       `json:"pod,omitzero"`
	NetNS     string    `json:"netns,omitempty"`
	Host      Interface `json:"host"`
	Container Interface `json:"container"`
	Addresses Addresses `json:"addresses"`
	// Pool is the pool of the addresses, whatever the settings say by now; absent when another IPAM gave them.
	Pool string `json:"pool,omitempty"`
	// ExternalIPAM says that the addresses belong to another IPAM.
	ExternalIPAM bool `json:"externalIPAM,omitempty"`
	// PortMappings and NoMasquerade are as in [EndpointRequest].
	PortMappings []PortMapping `json:"portMappings,omitempty"`
	NoMasquerade bool          `json:"noMasquerade,omitempty"`
	// Bandwidth is the requested bandwidth. An unknown held endpoint has an egress rate alone: it
	// is the kernel's, 0 for none.
	Bandwidth Bandwidth `json:"bandwidth,omitzero"`
	// Labels, NamespaceLabels and NamedPorts are as they were given last.
	Labels          map[string]string `json:"labels,omitempty"`
	NamespaceLabels map[string]string `json:"namespaceLabels,omitempty"`
	NamedPorts      []NamedPort       `json:"namedPorts,omitempty"`
	// Audit says that no policy is in force for the endpoint: packets that they would deny pass.
	Audit   bool      `json:"audit,omitempty"`
	Created time.Time `json:"created,omitzero"`
	// Gateways are the link-local next hops of the container's default routes, one a family that it has an address
	// of. Both answer at the MAC of Host, and nothing on the link answers ARP or neighbour discovery: the neighbour
	// entries must be permanent.
	Gateways Addresses `json:"gateways"`
	// Policy is nil while the agent does not know the endpoint's policies.
	Policy *EndpointPolicy `json:"policy,omitempty"`
	// Traffic counts what the endpoint sent and received; nil when the datapath does not say.
	Traffic *Traffic `json:"traffic,omitempty"`
}

// Traffic counts packets of one endpoint since it was created.
type Traffic struct {
	FromPod Counter `json:"fromPod"`
	ToPod   Counter `json:"toPod"`
	// Drops counts dropped packets by reason; reasons that never happened are left out.
	Drops map[string]uint64 `json:"drops,omitempty"`
}

// Counter counts packets that passed.
type Counter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// DeleteRequest is the body of DELETE /v1/endpoint.
type DeleteRequest struct {
	ContainerID string `json:"containerID"`
	// Began is as in [EndpointRequest].
	Began int64 `json:"began,omitempty"`
}

// DeleteResult answers a deletion. It is a success when Errors is not zero, too: what failed is on record in the
// agent, which tries again.
type DeleteResult struct {
	Deleted int `json:"deleted"` // endpoints that are gone
	// Skipped counts endpoints that stay: they began after the deletion did, or are the agent's own, such as the health
	// endpoint.
	Skipped int      `json:"skipped,omitempty"`
	Errors  int      `json:"errors"` // parts of them that could not be taken down yet
	Details []string `json:"details,omitempty"`
	// GivenUp has the errors of steps that failed when the endpoint was deleted by force: parts of it may be left on the
	// node.
	GivenUp []string `json:"givenUp,omitempty"`
}
