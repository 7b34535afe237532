package spec

import (
	"net/netip"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

// Args is what Porin knows of CNI_ARGS. Other keys are no fault.
type Args struct {
	PodNamespace, PodName, PodUID string
	PodPriorityClass              string
	IPs                           []netip.Addr
	Pool                          string // that addresses come from; "" when it names none
	Reservation                   string // token of what is reserved, and to be taken over
}

// parseArgs reads "KEY=VALUE;KEY=VALUE".
func parseArgs(text string) (args Args, _ *Error) {
	if text == "" {
		return args, nil
	}
	for pair := range strings.SplitSeq(text, ";") {
		key, value, ok := strings.Cut(pair, "=")
		if !ok && pair != "" {
			return Args{}, badEnvironment("CNI_ARGS", pair, "is malformed", "KEY=VALUE, with ';' between two of them")
		}
		switch key {
		case "K8S_POD_NAMESPACE":
			args.PodNamespace = value
		case "K8S_POD_NAME":
			args.PodName = value
		case "K8S_POD_UID":
			args.PodUID = value
		case "K8S_POD_PRIORITY_CLASS":
			args.PodPriorityClass = value
		case "IP":
			ips, err := parseIPs(strings.Split(value, ","))
			if err != nil {
				return Args{}, badEnvironment("CNI_ARGS", pair, "is malformed", "IP=ADDRESS or IP=ADDRESS,ADDRESS")
			}
			args.IPs = ips
		case "PORIN_POOL":
			if value != "" && v1.CheckPoolName(value) != nil {
				return Args{}, badEnvironment("CNI_ARGS", pair, "is malformed", "PORIN_POOL=NAME, where a name has "+v1.PoolNameRule)
			}
			args.Pool = value
		case "PORIN_RESERVATION":
			args.Reservation = value
		}
	}
	return args, nil
}

// parseIPs reads addresses, with or without a prefix length, which does not matter: every container has its address
// to itself.
func parseIPs(texts []string) (ips []netip.Addr, err error) {
	for _, text := range texts {
		text, _, _ = strings.Cut(strings.TrimSpace(text), "/")
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return nil, err
		}
		ips = append(ips, ip.Unmap())
	}
	return ips, nil
}
