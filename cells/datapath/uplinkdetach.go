package datapath

import (
	"errors"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/nl"
)

// Detached is a program that [DetachUplinks] has taken off a device.
type Detached struct {
	Program, Device string
	Clsact          bool // it was a filter on the qdisc clsact, which is still there
}

// DetachUplinks takes the programs of any agent off the devices of the calling thread's network namespace, other than
// host ends. It is for programs that run while the agent does not.
func DetachUplinks() (detached []Detached, err error) {
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer handle.Close()
	links, err := nl.Dump(handle.LinkList)
	for _, side := range []*uplinkSide{uplinkIngress, uplinkEgress} {
		hooks := []uplinkHook{&clsactHook{handle: handle, filter: side.filter()}}
		if loader.HasTCX() {
			hooks = append(hooks, &tcxHook{side: side, namespace: func(f func() error) error { return f() }})
		}
		for i, hook := range hooks {
			for _, l := range links {
				if link.IsHostEnd(l) {
					continue
				}
				id, hookErr := hook.find(l.Attrs().Index)
				if id != 0 && hookErr == nil {
					if hookErr = hook.detach(l.Attrs().Index); hookErr == nil {
						detached = append(detached, Detached{side.program, l.Attrs().Name, i == 0})
					}
				}
				err = errors.Join(err, hookErr)
			}
		}
	}
	return detached, err
}
