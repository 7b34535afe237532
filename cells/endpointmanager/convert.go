package endpointmanager

import (
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
)

// ToV1 is the endpoint as the API shows it, without what a [Describer] adds.
func ToV1(ep Endpoint) v1.Endpoint {
	return v1.Endpoint{
		ID:           ep.ID,
		ContainerID:  ep.Spec.Attachment.ContainerID,
		IfName:       ep.Spec.Attachment.IfName,
		State:        string(ep.State),
		Network:      ep.Spec.Network,
		Pod:          v1.Pod(ep.Spec.Pod),
		NetNS:        ep.Spec.NetNS,
		Host:         interfaceToV1(ep.Host),
		Container:    interfaceToV1(ep.Container),
		Addresses:    v1.Addresses(ep.Addresses),
		Pool:         ep.Pool,
		ExternalIPAM: ep.Spec.ExternalIPAM,
		Created:      ep.Created,
		Gateways:     gatewaysOf(ep.Addresses),
	}
}

func interfaceToV1(i Interface) v1.Interface {
	if i == (Interface{}) {
		return v1.Interface{}
	}
	return v1.Interface{Name: i.Name, Index: i.Index, MAC: i.MAC.String()}
}

func gatewaysOf(a Addresses) (gateways v1.Addresses) {
	if a.IPv4.IsValid() {
		gateways.IPv4 = v1.GatewayIPv4
	}
	if a.IPv6.IsValid() {
		gateways.IPv6 = v1.GatewayIPv6
	}
	return gateways
}

var errBegan = fault.New(fault.Invalid, "began: want nanoseconds since the node booted")

// specFromV1 reads what a caller asks for; [Spec.Validate] does the rest.
func specFromV1(a Attachment, body v1.EndpointRequest) (Spec, error) {
	if body.Began < 0 {
		return Spec{}, errBegan
	}
	return Spec{
		Attachment:   a,
		Network:      body.Network,
		Pod:          Pod(body.Pod),
		NetNS:        body.NetNS,
		MTU:          body.MTU,
		Pool:         body.Pool,
		Requested:    Addresses(body.Addresses),
		Reservation:  body.Reservation,
		ExternalIPAM: body.ExternalIPAM,
		Began:        time.Duration(body.Began),
	}, nil
}
