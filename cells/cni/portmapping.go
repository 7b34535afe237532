package cni

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"porin.dev/porin/cells/endpoint"
)

// portMapping is one as runtimes hand it over (the capability portMappings of the CNI conventions).
type portMapping struct {
	HostPort      int    `json:"hostPort"`
	ContainerPort int    `json:"containerPort"`
	Protocol      string `json:"protocol"`
	HostIP        string `json:"hostIP"`
}

// portMappings is what a [endpoint.Spec] carries of them. A host port of 0 says that the container asks for none.
func portMappings(list []portMapping) (string, error) {
	var mappings []endpoint.PortMapping
	for _, p := range list {
		if p.HostPort == 0 {
			continue
		}
		bad := func(why string) (string, error) {
			return "", fail(types.ErrInvalidNetworkConfig, fmt.Sprintf("host port %d: %s", p.HostPort, why), "correct the hostPort of the pod's container")
		}
		m := endpoint.PortMapping{HostPort: uint16(p.HostPort), ContainerPort: uint16(p.ContainerPort), Protocol: strings.ToUpper(p.Protocol)}
		if int(m.HostPort) != p.HostPort || int(m.ContainerPort) != p.ContainerPort {
			return bad(fmt.Sprintf("it, or the container's port %d, is no port", p.ContainerPort))
		}
		if p.HostIP != "" {
			addr, err := netip.ParseAddr(p.HostIP)
			if err != nil {
				return bad(fmt.Sprintf("the host IP %.64q is no address", p.HostIP))
			}
			m.HostIP = addr.Unmap()
		}
		mappings = append(mappings, m)
	}
	text, err := endpoint.EncodePortMappings(mappings)
	if err != nil {
		return "", fail(types.ErrInvalidNetworkConfig, err.Error(), "correct the hostPorts of the pod's containers")
	}
	return text, nil
}
