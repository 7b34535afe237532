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
var forwardingSysctls = []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"}

// enableForwarding sets what is not set, in the network namespace of the calling thread. A node without IPv6 is fine.
func enableForwarding() error {
	for _, name := range forwardingSysctls {
		path := "/proc/sys/" + name
		value, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(value)) != "0" {
			continue
		}
		if err == nil {
			err = os.WriteFile(path, []byte("1"), 0)
		}
		if err != nil {
			sysctl := strings.ReplaceAll(name, "/", ".")
			return fmt.Errorf("enable forwarding: %w; run sysctl -w %s=1 on the node", err, sysctl)
		}
	}
	return nil
}
