package v1

import (
	"net/netip"
	"time"
)

// Flow is one line of the stream of GET /v1/flows: a packet that has opened a connection or was dropped, or a request
// through the proxy.
type Flow struct {
	Seq  uint64    `json:"seq"` // grows by one, also for flows that the client has not asked for
	Time time.Time `json:"time"`
	// Lost is not 0 in a line that is no flow, and has nothing else: so many were not told before it. The datapath or the
	// agent had more to do than they may spend on this, or this client was too slow.
	Lost    uint64 `json:"lost,omitempty"`
	Verdict string `json:"verdict,omitempty"`
	// Reason is why the packet was dropped, as in the metric porin_datapath_drops_total. Of a request it is why the client
	// has not got the server's answer, as in porin_proxy_requests_total.
	Reason string `json:"reason,omitempty"`
	// Place is "from-pod", "to-pod", "to-uplink" or, for a request, "proxy": where it was seen.
	Place string `json:"place,omitempty"`
	// Direction is "egress" when the packet was seen at the pod that has opened the connection, or on its way out of the
	// node, and "ingress" at the pod that it has reached.
	Direction string `json:"direction,omitempty"`
	Protocol  string `json:"protocol,omitempty"` // as in [PolicyExplanation]
	// From is who has opened the connection, and To is whom it has reached, both as they are without translation. Reply
	// says that the packet was going from To to From.
	From  FlowEnd `json:"from,omitzero"`
	To    FlowEnd `json:"to,omitzero"`
	Reply bool    `json:"reply,omitempty"`
	// Service is what From has addressed, if the node has translated that to To.
	Service FlowEnd `json:"service,omitzero"`
	// Egress and Ingress are the policies' decisions, with the rules. They are not there when no policy has decided about
	// the packet, and when policies or endpoints have changed since. For [FlowAudit] they are the decisions without audit.
	Egress  *PolicyDecision `json:"egress,omitempty"`
	Ingress *PolicyDecision `json:"ingress,omitempty"`
	Length  uint32          `json:"length,omitempty"` // of the packet, in bytes, link header included
	// HTTP and DNS are the request: at most one of them is there.
	HTTP *HTTPRequest `json:"http,omitempty"`
	DNS  *DNSQuery    `json:"dns,omitempty"`
}

// HTTPRequest is a request through the proxy. The client chooses its texts.
type HTTPRequest struct {
	Method string `json:"method,omitempty"`
	Host   string `json:"host,omitempty"`
	Path   string `json:"path,omitempty"`   // without the query; cut after 256 bytes
	Status int    `json:"status,omitempty"` // that the client has got; 0: none
}

// DNSQuery is a query through the proxy. The client chooses its name.
type DNSQuery struct {
	Name string `json:"name,omitempty"`
	Type string `json:"type,omitempty"` // such as "AAAA", or "TYPE65280"
	Code string `json:"code,omitempty"` // of the reply, such as "NOERROR" or "NXDOMAIN"; "" if there was none
}

// The verdicts of a [Flow].
const (
	FlowAllowed = "allowed"
	FlowAudit   = "audit"   // allowed, as the policy that would deny it is in audit
	FlowDenied  = "denied"  // by a policy
	FlowDropped = "dropped" // for another reason
)

// FlowVerdicts returns them.
func FlowVerdicts() []string { return []string{FlowAllowed, FlowAudit, FlowDenied, FlowDropped} }

// The directions of a [Flow].
const (
	FlowEgress  = "egress"
	FlowIngress = "ingress"
)

// FlowDirections returns them.
func FlowDirections() []string { return []string{FlowEgress, FlowIngress} }

// FlowEnd is one end of a connection.
type FlowEnd struct {
	Address netip.Addr `json:"address,omitzero"`
	Port    uint16     `json:"port,omitempty"`
	Kind    string     `json:"kind,omitempty"` // as in [PolicyEnd]
	// Identity is the number of the set of addresses that the rules of no policy tell apart. It is local to the node, and
	// to the agent's life.
	Identity uint32 `json:"identity,omitempty"`
	// Names are names of DNS, three at most, of an address outside of the cluster to which a pod connects: names that the
	// pod has asked for through the proxy, and whose answers had the address, the last one first. Pods and servers choose
	// them.
	Names []string `json:"names,omitempty"`
	// Pod and Labels are set for pods of all nodes, Endpoint for pods of this node.
	Pod      Pod               `json:"pod,omitzero"`
	Endpoint uint16            `json:"endpoint,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"`
}
