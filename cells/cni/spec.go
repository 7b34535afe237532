package cni

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
)

// addConfig is what ADD reads of a network configuration besides.
type addConfig struct {
	MTU           int             `json:"mtu" doc:"MTU of the interface; what fits on the way to other nodes when it is not there"`
	Pool          string          `json:"pool" doc:"multi-pool: the pool of containers for which nothing nearer names one"`
	PrevResult    json.RawMessage `json:"prevResult" doc:"ADD refuses one: porin-cni is the first plugin of a list"`
	RuntimeConfig struct {
		IPs         []string          `json:"ips" doc:"addresses that the container asks for, one of each family at the most (capability ips)"`
		Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations" doc:"annotations of the pod (capability io.kubernetes.cri.pod-annotations)"`
		Bandwidth   bandwidthConfig   `json:"bandwidth" doc:"limits of what the container sends and gets (capability bandwidth)"`
		PortMaps    []portMapping     `json:"portMappings" doc:"ports of the node that lead to the container (capability portMappings)"`
		MAC         string            `json:"mac" doc:"refused: the MAC cannot be chosen"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []string `json:"ips" doc:"as runtimeConfig.ips"`
			MAC string   `json:"mac" doc:"refused: the MAC cannot be chosen"`
		} `json:"cni"`
	} `json:"args"`
}

// podArgs are the keys of CNI_ARGS that Porin knows. Others are no fault.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE      types.UnmarshallableString `doc:"namespace of the pod"`
	K8S_POD_NAME           types.UnmarshallableString `doc:"name of the pod"`
	K8S_POD_UID            types.UnmarshallableString `doc:"UID of the pod: a newer container of the same pod takes the older one's place"`
	K8S_POD_PRIORITY_CLASS types.UnmarshallableString `doc:"priority class of the pod, for --endpoint-critical-priority-classes"`
	IP                     types.UnmarshallableString `doc:"addresses that the container asks for, comma separated, one of each family at the most"`
	MAC                    types.UnmarshallableString `doc:"refused: the MAC cannot be chosen"`
	PORIN_POOL             types.UnmarshallableString `doc:"multi-pool: the pool of the container's addresses"`
	PORIN_RESERVATION      types.UnmarshallableString `doc:"token of the reservation whose addresses the container takes over"`
}

// The pod's annotations that name the pool of its addresses, and the token of the reservation whose addresses it takes
// over.
const (
	poolAnnotation        = "porin.dev/pool"
	reservationAnnotation = "porin.dev/reservation"
)

// masqueradeAnnotation says with "false" that the pod keeps its address towards what is outside of the cluster.
const masqueradeAnnotation = "porin.dev/masquerade"

// spec is what an ADD asks for.
func (c *call) spec() (endpoint.Spec, error) {
	var config addConfig
	err := json.Unmarshal(c.raw, &config)
	if mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return endpoint.Spec{}, badConfig(mismatch.Field, fmt.Sprintf("%s, want %s", mismatch.Value, mismatch.Type))
	}
	if err != nil {
		return endpoint.Spec{}, fail(types.ErrInvalidNetworkConfig, "network configuration: "+err.Error(), "correct the network configuration")
	}
	if isSet(config.PrevResult) {
		return endpoint.Spec{}, fail(types.ErrInvalidNetworkConfig,
			"porin-cni is chained after another plugin, but makes the interface itself", "make it the first of the list of plugins")
	}
	bandwidth, err := config.RuntimeConfig.Bandwidth.limits()
	if err != nil {
		return endpoint.Spec{}, err
	}
	var args podArgs
	if err := types.LoadArgs("IgnoreUnknown=1;"+strings.Trim(c.args, ";"), &args); c.args != "" && err != nil {
		return endpoint.Spec{}, fail(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("CNI_ARGS: %.200s", err),
			"the container runtime must set it to KEY=VALUE, with ';' between two of them")
	}
	if cmp.Or(string(args.MAC), config.RuntimeConfig.MAC, config.Args.CNI.MAC) != "" {
		return endpoint.Spec{}, fail(types.ErrInvalidNetworkConfig, "the MAC of an interface of porin-cni cannot be chosen",
			"do not ask for one (CNI_ARGS MAC, runtimeConfig.mac, args.cni.mac)")
	}
	requested, err := requestedAddresses(config, string(args.IP))
	if err != nil {
		return endpoint.Spec{}, err
	}
	reservation, err := reservationOf(config, string(args.PORIN_RESERVATION))
	if err != nil {
		return endpoint.Spec{}, err
	}
	pool, err := c.pool(config, string(args.PORIN_POOL))
	if err != nil {
		return endpoint.Spec{}, err
	}
	mappings, err := portMappings(config.RuntimeConfig.PortMaps)
	if err != nil {
		return endpoint.Spec{}, err
	}
	masquerade, err := masqueradeOf(config.RuntimeConfig.Annotations)
	if err != nil {
		return endpoint.Spec{}, err
	}
	spec := endpoint.Spec{
		PortMappings: mappings, NoMasquerade: !masquerade,
		Attachment: c.attachment, Network: c.config.Name, NetNS: c.netns, MTU: config.MTU, Began: c.began,
		Bandwidth: bandwidth,
		Pod: endpoint.Pod{
			Namespace: string(args.K8S_POD_NAMESPACE), Name: string(args.K8S_POD_NAME), UID: string(args.K8S_POD_UID),
			PriorityClass: string(args.K8S_POD_PRIORITY_CLASS),
		},
		ExternalIPAM: c.delegated(), IPAM: c.plugin(),
	}
	if !c.delegated() { // a pod's request to Porin's pools may be meant for its other networks
		spec.Requested, spec.Pool, spec.NetworkPool, spec.Reservation = requested, pool, config.Pool, reservation
	}
	return spec, nil
}

func isSet(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// reservationOf is the token of the reservation that the container takes over: of CNI_ARGS, or else of the pod's
// annotation; "" is none. The error does not show it, because with it others could take the address.
func reservationOf(config addConfig, arg string) (string, error) {
	token, where := arg, "PORIN_RESERVATION in CNI_ARGS"
	if token == "" {
		token, where = config.RuntimeConfig.Annotations[reservationAnnotation], "the pod's annotation "+reservationAnnotation
	}
	if token == "" {
		return "", nil
	}
	if err := v1.CheckToken(token); err != nil {
		return "", fail(types.ErrInvalidNetworkConfig, where+" "+err.Error(), "it is the token that porin ipam reserve has printed: "+v1.TokenRule)
	}
	return token, nil
}

// pool is the pool that the pod names: in CNI_ARGS, or else by its annotation.
func (c *call) pool(config addConfig, arg string) (string, error) {
	annotation := config.RuntimeConfig.Annotations[poolAnnotation]
	for name, where := range map[string]string{arg: "PORIN_POOL in CNI_ARGS", annotation: "the pod's annotation " + poolAnnotation, config.Pool: "pool of the network configuration"} {
		if name != "" && v1.CheckPoolName(name) != nil {
			return "", fail(types.ErrInvalidNetworkConfig, fmt.Sprintf("%s: %.64q is malformed", where, name), "the name of a pool has "+v1.PoolNameRule)
		}
	}
	if config.Pool != "" && c.delegated() {
		return "", badConfig("pool", fmt.Sprintf("%q: the addresses come from the IPAM plugin %.64s, which has no pools of Porin's", config.Pool, c.config.IPAM.Type))
	}
	return cmp.Or(arg, annotation), nil
}

// requestedAddresses are the addresses in CNI_ARGS (IP), runtimeConfig.ips and args.cni.ips: at most one of each
// family.
func requestedAddresses(config addConfig, arg string) (a endpoint.Addresses, err error) {
	texts := append(config.RuntimeConfig.IPs, config.Args.CNI.IPs...)
	if arg != "" {
		texts = append(texts, strings.Split(arg, ",")...)
	}
	for _, text := range texts {
		text, _, _ = strings.Cut(strings.TrimSpace(text), "/") // a container has its address to itself
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return a, fail(types.ErrInvalidNetworkConfig, fmt.Sprintf("requested address %.64q: it is none", text), "ask for addresses such as 10.0.0.7 (CNI_ARGS IP, runtimeConfig.ips, args.cni.ips)")
		}
		addr = addr.Unmap()
		slot := &a.IPv6
		if addr.Is4() {
			slot = &a.IPv4
		}
		if slot.IsValid() && *slot != addr {
			return a, fail(types.ErrInvalidNetworkConfig, fmt.Sprintf("the addresses %s and %s are asked for, two of one family", *slot, addr),
				"ask for one IPv4 and one IPv6 address at the most (CNI_ARGS IP, runtimeConfig.ips, args.cni.ips)")
		}
		*slot = addr
	}
	return a, nil
}

// masqueradeOf reads the pod's annotation; a pod without it is masqueraded.
func masqueradeOf(annotations map[string]string) (bool, error) {
	switch text := annotations[masqueradeAnnotation]; text {
	case "", "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fail(types.ErrInvalidNetworkConfig, fmt.Sprintf("the pod's annotation %s is %.64q", masqueradeAnnotation, text),
			`want "false" for a pod that keeps its address outside of the cluster, or "true"`)
	}
}

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
