package endpointmanagertest

import (
	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
)

// Spec is a valid request for the attachment "containerID:ifname"; it panics when that is none.
func Spec(attachment string) endpointmanager.Spec {
	a, err := endpointmanager.ParseAttachment(attachment)
	if err != nil {
		panic(err)
	}
	return endpointmanager.Spec{
		Attachment: a,
		Network:    "porin",
		Pod:        endpointmanager.Pod{Namespace: "default", Name: "pod-" + a.ContainerID, UID: "uid-" + a.ContainerID},
		NetNS:      "/run/netns/" + a.ContainerID,
	}
}

// WithLink is the endpoint as the step link leaves it, with a host end of that index.
func WithLink(ep endpointmanager.Endpoint, index int) endpointmanager.Endpoint {
	a := ep.Spec.Attachment
	host, container := v1.InterfaceMACs(a.ContainerID, a.IfName)
	ep.LinkKind = endpointmanager.LinkVeth
	ep.Host = endpointmanager.Interface{Name: v1.HostInterfaceName(a.ContainerID, a.IfName), Index: index, MAC: mustMAC(host)}
	ep.Container = endpointmanager.Interface{Name: a.IfName, Index: 2, MAC: mustMAC(container)}
	return ep
}

func mustMAC(text string) endpointmanager.MAC {
	mac, err := endpointmanager.ParseMAC(text)
	if err != nil {
		panic(err)
	}
	return mac
}
