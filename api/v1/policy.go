package v1

import (
	"encoding/json"
	"net/netip"
	"time"
)

// Policy is a network policy that was put. Only a NetworkPolicy and a CiliumNetworkPolicy have a namespace.
type Policy struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Tier is "admin", "networkpolicy" or "baseline". They are evaluated in this order, and in a tier the lower priority
	// first. There are no priorities in "networkpolicy".
	Tier     string `json:"tier"`
	Priority int    `json:"priority,omitempty"`
	// Egress and Ingress count the rules for a direction; -1 is that the policy does not affect it.
	Egress  int `json:"egress"`
	Ingress int `json:"ingress"`
	// Audit says that the policy is not in force: packets that it would deny pass.
	Audit bool `json:"audit,omitempty"`
	// Source is "file" (porin policy apply) or "kubernetes" (its API).
	Source string `json:"source"`
	// Reports are advice for its author: parts without effect, and parts that the API leaves undefined.
	Reports []string `json:"reports,omitempty"`
	// Outcome is "created", "changed" or "unchanged" in the answer to PUT /v1/policy.
	Outcome string `json:"outcome,omitempty"`
	// Manifest is the document that was put, as JSON. Lists are without.
	Manifest json.RawMessage `json:"manifest,omitempty"`
}

// PolicyStatus is what is in force, in [Status].
type PolicyStatus struct {
	Policies int `json:"policies"`
	// Revision counts the changes of policies, labels and addresses that were written to the datapath since the agent's
	// start.
	Revision   uint64 `json:"revision"`
	Identities int    `json:"identities"` // sets of addresses that the rules of no policy tell apart
	// Audit says that no policy is in force on this node: packets that they would deny pass.
	Audit bool `json:"audit,omitempty"`
	// Reports are the first 100, as in [Policy].
	Reports []PolicyReport `json:"reports,omitempty"`
	// Error is why the latest change is not in the datapath, which has what was before; the agent tries again. FailedSince
	// is when it failed first.
	Error       string    `json:"error,omitempty"`
	FailedSince time.Time `json:"failedSince,omitzero"`
}

// PolicyReport is what the authors of policies should know.
type PolicyReport struct {
	Policies []string `json:"policies"` // "KIND NAMESPACE/NAME", or "KIND NAME"
	Text     string   `json:"text"`
}

// EndpointPolicy has the directions in which policies restrict an endpoint.
type EndpointPolicy struct {
	Egress  bool `json:"egress"`  // rules decide about its own connections
	Ingress bool `json:"ingress"` // rules decide about connections to it
	// Audit says that rules would decide otherwise if nothing was in audit.
	Audit bool `json:"audit,omitempty"`
	// Error is as in [PolicyStatus]. The datapath may have the previous policies for this endpoint.
	Error string `json:"error,omitempty"`
}

// PolicyExplanation is the answer of GET /v1/policy/explain: the policies' verdict on a connection.
type PolicyExplanation struct {
	From     PolicyEnd `json:"from"`
	To       PolicyEnd `json:"to"`
	Protocol string    `json:"protocol"` // "TCP", "UDP", "SCTP", "ICMP", "ICMPv6", or a number
	Port     uint16    `json:"port,omitempty"`
	Allowed  bool      `json:"allowed"` // by both directions
	// From's policies decide Egress, To's policies Ingress.
	Egress  PolicyDecision `json:"egress"`
	Ingress PolicyDecision `json:"ingress"`
	// AuditEgress and AuditIngress are what these would be if nothing was in audit; nil when it is the same.
	AuditEgress  *PolicyDecision `json:"auditEgress,omitempty"`
	AuditIngress *PolicyDecision `json:"auditIngress,omitempty"`
	// Datapath is what this node's kernel decides.
	Datapath PolicyDatapath `json:"datapath"`
	// Error is as in [PolicyStatus]: the datapath may decide as before.
	Error string `json:"error,omitempty"`
	// ProxyError is why the proxy does not serve the connection now, or not as it should, which goes through it: it waits.
	ProxyError string `json:"proxyError,omitempty"`
}

// PolicyDatapath is what this node's kernel decides about a connection, read from the maps of its programs.
type PolicyDatapath struct {
	// Egress and Ingress say whether it is allowed by the policies of either end; absent for an end that is no pod of this
	// node.
	Egress  *bool `json:"egress,omitempty"`
	Ingress *bool `json:"ingress,omitempty"`
	// Differs is that the kernel does not decide as the policies say.
	Differs bool `json:"differs,omitempty"`
	// NotAsked is why the kernel was not asked.
	NotAsked string `json:"notAsked,omitempty"`
}

// PolicyDiff is the answer of POST /v1/policy/diff: which of the connections that were seen lately proposed policies
// decide otherwise, or let ask for something else.
type PolicyDiff struct {
	Flows   int       `json:"flows"`          // how many connections were evaluated
	Since   time.Time `json:"since,omitzero"` // when the agent began to record them
	Changed int       `json:"changed"`        // how many are decided otherwise
	// Changes are the first 1,000 of these, the most frequent first.
	Changes []PolicyFlowChange `json:"changes"`
}

// PolicyFlowChange is a connection that proposed policies decide otherwise.
type PolicyFlowChange struct {
	From     PolicyEnd     `json:"from"`
	To       PolicyEnd     `json:"to"`
	Protocol string        `json:"protocol"` // as in [PolicyExplanation]
	Port     uint16        `json:"port,omitempty"`
	Count    uint64        `json:"count"` // how often it was seen
	LastSeen time.Time     `json:"lastSeen,omitzero"`
	Now      PolicyVerdict `json:"now"`
	Then     PolicyVerdict `json:"then"`
}

// PolicyVerdict is what policies decide about a connection.
type PolicyVerdict struct {
	Allowed bool           `json:"allowed"` // by both directions
	Egress  PolicyDecision `json:"egress"`
	Ingress PolicyDecision `json:"ingress"`
}

// PolicyEnd is one end of a connection.
type PolicyEnd struct {
	Address netip.Addr `json:"address"`
	// Kind is "pod", "host" (this node), or "world": not known here.
	Kind string `json:"kind"`
	// Pod is known of all nodes, Endpoint of this one.
	Pod      Pod    `json:"pod,omitzero"`
	Endpoint uint16 `json:"endpoint,omitempty"`
	// Held is that the agent's start holds the endpoint: see [HeldEndpoint].
	Held bool `json:"held,omitempty"`
	// Names are the names that policies select the address by, in an explanation.
	Names []string `json:"names,omitempty"`
}

// ReasonOtherNode is the reason of a [PolicyDecision] that this node leaves to the node of the pod.
const ReasonOtherNode = "decided by the pod's node"

// PolicyDecision is what is decided for one direction, and why.
type PolicyDecision struct {
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"` // "rule", "default deny", "no policy selects the pod" and others
	// Rule has decided; nil when no policy has.
	Rule *PolicyRule `json:"rule,omitempty"`
	// Passed are the rules that left the decision to the next tier.
	Passed []PolicyRule `json:"passed,omitempty"`
	// Layer7 is what may be asked for on a connection that goes through the proxy, for people: "GET /public/.*". The first
	// 20, and how many more. Absent: anything.
	Layer7 []string `json:"layer7,omitempty"`
}

// PolicyRule is a rule of a policy.
type PolicyRule struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Policy    string `json:"policy"`
	Direction string `json:"direction"` // "egress" or "ingress"
	// Index is the rule's place in the policy's list, from 0 on; -1 is none of them, but what the policy denies by
	// selecting the pod.
	Index int    `json:"index"`
	Name  string `json:"name,omitempty"`
}
