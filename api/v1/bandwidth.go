package v1

// Bandwidth limits an interface of a container, as the CNI capability of that name. Ingress is what the container gets,
// egress what it sends. A rate is in bits per second of IP packets, from 1000 (1 kbit/s) to 10^15; 0 is no limit. A
// burst is in bits: how much may pass at once after a pause. 0, 2147483647 and 4294967295, which runtimes give for want
// of an opinion, leave it to the agent.
type Bandwidth struct {
	IngressRate  uint64 `json:"ingressRate,omitempty"`
	IngressBurst uint64 `json:"ingressBurst,omitempty"`
	EgressRate   uint64 `json:"egressRate,omitempty"`
	EgressBurst  uint64 `json:"egressBurst,omitempty"`
}
