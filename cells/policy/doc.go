// Package policy keeps the network policies of this node, and has the datapath enforce them for its endpoints.
//
//	PUT /v1/policy --> [Policies] --> a file                      [View] <-- status, metrics, explain, diff, doctor, monitor
//	Kubernetes API -------^ |                                       |
//	endpointmanager --> [Step] --> [Queue]: one writer --> engine --> [Enforcer] (the kernel's maps)
//	Services, CIDR groups --> [References]: peers of rules that name them --^
//	node's addresses --------------^       |                :
//	the DNS proxy --> [Learner] ---^       '--> [Proxy]: layer 7 rules, before rows have their numbers
//	[Flows] --> POST /v1/policy/diff --> another engine, with what is proposed
//
// What it promises:
//
//   - The creation of an endpoint is answered when its policy is in the datapath, so its first packet is subject to it.
//     So is a change of labels, and so is a change of policies.
//   - A change that cannot be written is tried again, with pauses that grow; until then the earlier policies are in
//     force, and status, health, metrics and the endpoint say so. Policies that would not fit are refused (a file's),
//     or denied by a substitute (the Kubernetes API's).
//   - After a start nothing is written before all endpoints are restored, and then all at once: the previous agent's
//     entries stay in force until then. An endpoint that the manager holds keeps its policy, too.
//   - No row sends a connection to the proxy with rules that it does not have: until then the row denies.
//   - Who has asked for a name gets the answer when its addresses are in the datapath. They outlive the agent: the
//     first write after a start has them.
//   - What is in audit (a policy, an endpoint, the node) is not in the datapath: Evaluate and explain say what it would
//     decide.
//   - Whoever compares the kernel with the engine does so when nothing is being written.
//   - Policies outlive the agent and the boot. An agent that cannot read them does not start.
//
// The packages below know no endpoint manager and no fx: model (the words), manifest (Kubernetes' files), engine
// (verdicts), dnsname (names and patterns of DNS), names (which addresses names have), policymap (writes rows into BPF
// maps), oracle (slow evaluator for tests).
package policy
