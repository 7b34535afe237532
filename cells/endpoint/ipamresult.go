package endpoint

import (
	"encoding/json"
	"fmt"
	"net/netip"
)

// IPAMResult is what a delegated IPAM plugin answered an ADD besides addresses, as far as Porin uses it.
type IPAMResult struct {
	Gateways Addresses       `json:"gateways,omitzero"` // of its subnets: shown in the result, nothing is sent to them
	Routes   []netip.Prefix  `json:"routes,omitempty"`  // destinations in the container, without the default
	DNS      json.RawMessage `json:"dns,omitempty"`     // as the CNI specification has it; nil for none
}

// Encode is the form that an [Endpoint] carries.
func (r IPAMResult) Encode() (string, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode the IPAM plugin's result: %w", err)
	}
	return string(text), nil
}

// DecodeIPAMResult reads the endpoint's IPAMResult; the zero one when no plugin was asked.
func (ep Endpoint) DecodeIPAMResult() (r IPAMResult, err error) {
	if ep.IPAMResult == "" {
		return r, nil
	}
	if err := json.Unmarshal([]byte(ep.IPAMResult), &r); err != nil {
		return r, fmt.Errorf("IPAM result of %s: %w", ep.Spec.Attachment, err)
	}
	return r, nil
}
