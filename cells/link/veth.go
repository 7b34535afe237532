package link

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/nl"
)

// createPair makes the veth pair, both ends down, with the peer in the container's namespace. What an earlier attempt for the
// same attachment left is replaced: its host end, and the peer with it. Any other interface of the requested name in the
// container is [ErrNameTaken] (CNI specification 1.1.0, section 2, ADD).
func (s *Step) createPair(ctx context.Context, node *netlink.Handle, ep endpointmanager.Endpoint, namespace *endpointmanager.Namespace) (endpointmanager.Endpoint, error) {
	a := ep.Spec.Attachment
	hostText, containerText := v1.InterfaceMACs(a.ContainerID, a.IfName)
	hostMAC, hostHW := macOf(hostText)
	containerMAC, containerHW := macOf(containerText)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = a.HostEnd(), hostHW, ep.Spec.MTU
	// One queue each way. The kernel's default is one for each possible CPU, with objects in sysfs for each: on 2 CPUs 0.1 ms
	// of 0.4. A veth takes no lock to transmit, and receives without its queues unless it has XDP or GRO.
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
	pair := &netlink.Veth{
		LinkAttrs: attrs, PeerName: a.IfName, PeerHardwareAddr: containerHW, PeerNamespace: netlink.NsFd(namespace.FD()), PeerTxQLen: -1,
	}
	err := node.LinkAdd(pair)
	if errors.Is(err, unix.EEXIST) {
		if err := s.removeEarlier(ctx, node, ep); err != nil {
			return ep, err
		}
		err = node.LinkAdd(pair)
	}
	if errors.Is(err, unix.EEXIST) {
		return ep, fmt.Errorf("create interface %s: %w: remove it, or ask for another name", a.IfName, ErrNameTaken)
	}
	if err != nil {
		return ep, fmt.Errorf("create veth pair %s: %w", attrs.Name, err)
	}
	if pair.Index == 0 { // the library asks for it, and leaves out an error
		return ep, fmt.Errorf("create veth pair %s: it was removed meanwhile: %w", attrs.Name, ErrNoLink)
	}
	ep.LinkKind = endpointmanager.LinkVeth
	ep.Host = endpointmanager.Interface{Name: attrs.Name, Index: pair.Index, MAC: hostMAC}
	ep.Container = endpointmanager.Interface{Name: a.IfName, MAC: containerMAC}
	if err := node.LinkSetAlias(pair, aliasOf(ep)); err != nil {
		return ep, fmt.Errorf("set the alias of %s: %w", attrs.Name, err)
	}
	return ep, nil
}

// removeEarlier removes the host end that an earlier attempt for this attachment left, if there is one.
func (s *Step) removeEarlier(ctx context.Context, node *netlink.Handle, ep endpointmanager.Endpoint) error {
	ep.Host = endpointmanager.Interface{}
	earlier, err := find(node, ep)
	switch {
	case errors.Is(err, ErrNoLink):
		return nil
	case err != nil:
		return err
	}
	s.log.Info("interface of an earlier attempt is replaced", "container", ep.Spec.Attachment.ContainerID,
		"ifname", ep.Spec.Attachment.IfName, "ifindex", earlier.Attrs().Index)
	return s.Remove(ctx, earlier.Attrs().Index)
}

// open brings both ends up for a plugin that speaks over the link before the endpoint has addresses.
func open(ctx context.Context, node, container *netlink.Handle, ep endpointmanager.Endpoint) error {
	if err := container.LinkSetUp(nl.LinkAt(ep.Container.Index)); err != nil {
		return fmt.Errorf("bring up %s in the container: %w", ep.Container.Name, err)
	}
	if err := node.LinkSetUp(nl.LinkAt(ep.Host.Index)); err != nil {
		return fmt.Errorf("bring up %s: %w", ep.Host.Name, err)
	}
	return errors.Join(WaitForCarrier(ctx, node, ep.Host.Index), WaitForCarrier(ctx, container, ep.Container.Index))
}
