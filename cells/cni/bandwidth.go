package cni

import (
	"encoding/json"

	"github.com/containernetworking/cni/pkg/types"

	"porin.dev/porin/cells/endpoint"
)

// bandwidthConfig is what the capability bandwidth hands over.
type bandwidthConfig struct {
	IngressRate  uint64 `json:"ingressRate" doc:"what the container gets at the most, in bits per second; 0 is no limit"`
	IngressBurst uint64 `json:"ingressBurst" doc:"how much of that may pass at once after a pause, in bits; 0, 2147483647 and 4294967295 leave it to the agent"`
	EgressRate   uint64 `json:"egressRate" doc:"what the container sends at the most, as ingressRate"`
	EgressBurst  uint64 `json:"egressBurst" doc:"as ingressBurst"`

	ShapedSubnets   json.RawMessage `json:"shapedSubnets" doc:"refused: a limit is for all that the container sends or gets"`
	UnshapedSubnets json.RawMessage `json:"unshapedSubnets" doc:"refused: a limit is for all that the container sends or gets"`
}

// limits are the requested limits.
func (b bandwidthConfig) limits() (endpoint.Bandwidth, error) {
	if isSet(b.ShapedSubnets) || isSet(b.UnshapedSubnets) {
		return endpoint.Bandwidth{}, fail(types.ErrInvalidNetworkConfig, "bandwidth for some subnets alone is not implemented",
			"remove shapedSubnets and unshapedSubnets (runtimeConfig.bandwidth)")
	}
	limits := endpoint.Bandwidth{IngressRate: b.IngressRate, IngressBurst: b.IngressBurst, EgressRate: b.EgressRate, EgressBurst: b.EgressBurst}
	if err := endpoint.ValidateBandwidth(limits); err != nil {
		return endpoint.Bandwidth{}, fail(types.ErrInvalidNetworkConfig, err.Error(),
			"correct runtimeConfig.bandwidth: of a pod of Kubernetes, the annotations kubernetes.io/ingress-bandwidth and egress-bandwidth")
	}
	return limits, nil
}
