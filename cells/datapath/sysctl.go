package datapath

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// forwardingSysctls make the node a router for its containers, which is what it is: what goes from one to the outside,
// or comes from there, passes the node's stack. Only what goes from container to container does not need them.
//
// A node that takes its default route from IPv6 router advertisements must have accept_ra=2 on that interface: a
// router ignores advertisements otherwise (Documentation/networking/ip-sysctl.rst).
var forwardingSysctls = []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"}

// enableForwarding sets what is not set, in the network namespace of the calling thread. A node without IPv6 is fine.
func enableForwarding() error {
	off, err := forwardingIsOff()
	if err != nil {
		return fmt.Errorf("enable forwarding: %w", err)
	}
	for _, sysctl := range off {
		if err := os.WriteFile(sysctlPath(sysctl), []byte("1"), 0); err != nil {
			return fmt.Errorf("enable forwarding: %w; run sysctl -w %s=1 on the node", err, sysctl)
		}
	}
	return nil
}

// forwardingIsOff names what is not set.
func forwardingIsOff() (off []string, err error) {
	for _, sysctl := range forwardingSysctls {
		value, err := os.ReadFile(sysctlPath(sysctl))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return off, err
		case strings.TrimSpace(string(value)) == "0":
			off = append(off, sysctl)
		}
	}
	return off, nil
}

func sysctlPath(name string) string { return "/proc/sys/" + strings.ReplaceAll(name, ".", "/") }
