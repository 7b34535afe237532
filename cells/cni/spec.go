package cni

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
)

// addConfig is what ADD reads of a network configuration besides.
type addConfig struct {
	MTU           int             `json:"mtu"`
	Pool          string          `json:"pool"`
	PrevResult    json.RawMessage `json:"prevResult"`
	RuntimeConfig struct {
		IPs         []string          `json:"ips"`
		Annotations map[string]string `json:"io.kubernetes.cri.pod-annotations"`
		Bandwidth   json.RawMessage   `json:"bandwidth"`
		MAC         string            `json:"mac"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
			MAC string   `json:"mac"`
		} `json:"cni"`
	} `json:"args"`
}

// podArgs are the keys of CNI_ARGS that Porin knows. Others are no fault.
type podArgs struct {
	types.CommonArgs
	K8S_POD_NAMESPACE, K8S_POD_NAME, K8S_POD_UID, K8S_POD_PRIORITY_CLASS types.UnmarshallableString
	IP, MAC, PORIN_POOL, PORIN_RESERVATION                               types.UnmarshallableString
}

// poolAnnotation is the pod's annotation that names the pool of its addresses.
const poolAnnotation = "porin.dev/pool"

// spec is what an ADD asks for.
func (c *call) spec() (endpointmanager.Spec, error) {
	var config addConfig
	if err := json.Unmarshal(c.raw, &config); err != nil {
		return endpointmanager.Spec{}, fail(types.ErrInvalidNetworkConfig, "network configuration: "+err.Error(), "correct the network configuration")
	}
	if isSet(config.PrevResult) {
		return endpointmanager.Spec{}, fail(types.ErrInvalidNetworkConfig,
			"porin-cni is chained after another plugin, but makes the interface itself", "make it the first of the list of plugins")
	}
	if isSet(config.RuntimeConfig.Bandwidth) {
		return endpointmanager.Spec{}, fail(types.ErrInvalidNetworkConfig,
			"the capability bandwidth is not implemented", "remove it from the capabilities of porin-cni, and the annotations kubernetes.io/ingress-bandwidth and egress-bandwidth from the pod")
	}
	var args podArgs
	if err := types.LoadArgs("IgnoreUnknown=1;"+strings.Trim(c.args, ";"), &args); c.args != "" && err != nil {
		return endpointmanager.Spec{}, fail(types.ErrInvalidEnvironmentVariables, fmt.Sprintf("CNI_ARGS: %.200s", err),
			"the container runtime must set it to KEY=VALUE, with ';' between two of them")
	}
	if cmp.Or(string(args.MAC), config.RuntimeConfig.MAC, config.Args.CNI.MAC) != "" {
		return endpointmanager.Spec{}, fail(types.ErrInvalidNetworkConfig, "the MAC of an interface of porin-cni cannot be chosen",
			"do not ask for one (CNI_ARGS MAC, runtimeConfig.mac, args.cni.mac)")
	}
	requested, err := requestedAddresses(config, string(args.IP))
	if err != nil {
		return endpointmanager.Spec{}, err
	}
	pool, err := c.pool(config, string(args.PORIN_POOL))
	if err != nil {
		return endpointmanager.Spec{}, err
	}
	spec := endpointmanager.Spec{
		Attachment: c.attachment, Network: c.config.Name, NetNS: c.netns, MTU: config.MTU, Began: c.began,
		Pod: endpointmanager.Pod{
			Namespace: string(args.K8S_POD_NAMESPACE), Name: string(args.K8S_POD_NAME), UID: string(args.K8S_POD_UID),
			PriorityClass: string(args.K8S_POD_PRIORITY_CLASS),
		},
		ExternalIPAM: c.delegated(), IPAM: c.plugin(),
	}
	if !c.delegated() { // what a pod asks of Porin's pools may be meant for its other networks
		spec.Requested, spec.Pool, spec.Reservation = requested, pool, string(args.PORIN_RESERVATION)
	}
	return spec, nil
}

func isSet(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// pool is the pool that addresses are asked from; "" leaves it to the agent's settings. What is nearer to the container is
// right: CNI_ARGS, then the pod's annotation, then the network's configuration.
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
	return cmp.Or(arg, annotation, config.Pool), nil
}

// requestedAddresses are those that CNI_ARGS (IP), runtimeConfig.ips and args.cni.ips ask for: at most one of each family.
func requestedAddresses(config addConfig, arg string) (a endpointmanager.Addresses, err error) {
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
