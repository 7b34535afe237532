package hostport

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/netns"
)

// ErrNoSCTP is returned for a port of SCTP when the kernel does not track it.
var ErrNoSCTP = fault.New(fault.Unavailable, "kernel does not translate ports of SCTP (CONFIG_NF_CT_PROTO_SCTP)")

// checkSCTP is called when the table is there, and with it connection tracking.
func checkSCTP(namespace *os.File) error {
	return netns.In(int(namespace.Fd()), func() error { return checkSCTPIn("/proc/sys/net/netfilter") })
}

func checkSCTPIn(sysctls string) error {
	if _, err := os.Stat(sysctls + "/nf_conntrack_max"); err != nil {
		return nil // where sysctls do not show, nothing can be said
	}
	if _, err := os.Stat(sysctls + "/nf_conntrack_sctp_timeout_established"); errors.Is(err, fs.ErrNotExist) {
		return ErrNoSCTP
	}
	return nil
}

func routeLocalnet(ep endpoint.Endpoint) string {
	return "ipv4/conf/" + ep.Host.Name + "/route_localnet"
}

// allowLoopback lets packets from 127.0.0.0/8 leave by the host end, and their replies come back. The kernel takes them
// for impossible otherwise.
func allowLoopback(namespace *os.File, ep endpoint.Endpoint) error {
	if err := netns.WriteSysctl(int(namespace.Fd()), routeLocalnet(ep), "1"); err != nil {
		return fmt.Errorf("let 127.0.0.1 of the node reach host ports: %w", err)
	}
	return nil
}

func hasLoopback(namespace *os.File, ep endpoint.Endpoint) bool {
	value, err := netns.Call(int(namespace.Fd()), func() ([]byte, error) { return os.ReadFile("/proc/sys/net/" + routeLocalnet(ep)) })
	return err == nil && string(bytes.TrimSpace(value)) == "1"
}
