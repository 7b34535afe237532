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
	host, container := v1.InterfaceMACs(a.ContainerID, a.IfName)
	return endpointmanager.Spec{
		Attachment: a,
		Network:    "porin",
		Pod:        endpointmanager.Pod{Namespace: "default", Name: "pod-" + a.ContainerID, UID: "uid-" + a.ContainerID},
		NetNS:      "/run/netns/" + a.ContainerID,
		Host:       endpointmanager.Interface{Name: v1.HostInterfaceName(a.ContainerID, a.IfName), Index: 7, MAC: mustMAC(host)},
		Container:  endpointmanager.Interface{Name: a.IfName, MAC: mustMAC(container)},
	}
}

func mustMAC(text string) endpointmanager.MAC {
	mac, err := endpointmanager.ParseMAC(text)
	if err != nil {
		panic(err)
	}
	return mac
}
