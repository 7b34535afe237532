package plugin

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
)

// onLink is the type of the reference plugin that speaks over the container's link.
const onLink = "dhcp"

// openLink has the link pass packets for a plugin that speaks over it. That plugin brings the container's end up itself, but
// does not wait until packets pass: its first one would be lost now and then, and sent again after ten seconds.
func (a *adding) openLink() error {
	if a.Config.IPAM != onLink {
		return nil
	}
	err := a.pod.Do(rtnl.LinkUp(a.host.Peer), rtnl.LinkByIndex(a.host.Peer, &rtnl.Link{}))
	if errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("bring %s up in the container: %w", a.IfName, errLinkGone)
	}
	if err != nil {
		return kernelFault("bring "+a.IfName+" up in the container", err)
	}
	return a.settle()
}
