package plugin

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
)

// makeLink makes the veth pair. What has one of the names already is of an ADD that was cut short, or of another
// plugin, and is replaced.
func (a *adding) makeLink() error {
	err := a.newVeth()
	if errors.Is(err, unix.EEXIST) {
		if err := a.clearNames(); err != nil {
			return kernelFault("replace the interface "+a.IfName+" that the container has", err)
		}
		err = a.newVeth()
	}
	if errors.Is(err, unix.ENODEV) { // made, and not found
		return fmt.Errorf("make the container's interface %s: %w", a.IfName, errLinkGone)
	}
	if err != nil {
		return kernelFault("make the container's interface "+a.IfName, err)
	}
	return nil
}

func (a *adding) newVeth() error {
	a.host = rtnl.Link{}
	return a.node.Do(
		rtnl.NewVeth(rtnl.Veth{
			Name: a.hostName, MAC: a.hostMAC, MTU: uint32(a.Config.MTU),
			Peer: rtnl.VethPeer{Name: a.IfName, MAC: a.podMAC, NetNS: a.netns},
		}),
		rtnl.LinkByName(a.hostName, &a.host),
	)
}

// noteOnLink is for people who look at the node. An ID too long for it is no reason to fail.
func (a *adding) noteOnLink() {
	_ = a.node.Do(rtnl.SetAlias(a.hostName, a.ContainerID+":"+a.IfName))
}

// clearNames removes what stands in the way on either side.
func (a *adding) clearNames() error {
	for _, err := range []error{
		a.node.Do(rtnl.DelLinkByName(a.hostName)), a.pod.Do(rtnl.DelLinkByName(a.IfName)),
	} {
		if err != nil && !errors.Is(err, unix.ENODEV) {
			return err
		}
	}
	return nil
}

// removeLink undoes makeLink. The agent may have done it already.
func (a *adding) removeLink() { _ = a.node.Do(rtnl.DelLink(a.host.Index)) }
