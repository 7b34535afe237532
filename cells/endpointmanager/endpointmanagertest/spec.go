package endpointmanagertest

import (
	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
)

// Spec is a valid request for the attachment "containerID:ifname"; it panics when that is none.
func Spec(attachment string) endpoint.Spec {
	a, err := endpoint.ParseAttachment(attachment)
	if err != nil {
		panic(err)
	}
	return endpoint.Spec{
		Attachment: a,
		Network:    "porin",
		Pod:        endpoint.Pod{Namespace: "default", Name: "pod-" + a.ContainerID, UID: "uid-" + a.ContainerID},
		NetNS:      "/run/netns/" + a.ContainerID,
	}
}

// WithLink is the endpoint as the step link leaves it, with a host end of that index.
func WithLink(ep endpoint.Endpoint, index int) endpoint.Endpoint {
	a := ep.Spec.Attachment
	host, container := v1.InterfaceMACs(a.ContainerID, a.IfName)
	ep.Host = endpoint.Interface{Name: v1.HostInterfaceName(a.ContainerID, a.IfName), Index: index, MAC: mustMAC(host)}
	ep.Container = endpoint.Interface{Name: a.IfName, Index: 2, MAC: mustMAC(container)}
	return ep
}

func mustMAC(text string) endpoint.MAC {
	mac, err := v1.ParseMAC(text)
	if err != nil {
		panic(err)
	}
	return mac
}
