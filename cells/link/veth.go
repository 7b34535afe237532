package link

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/task"
)

// createPair makes the veth pair, both ends down, with the peer in the container's namespace. The interfaces of an
// earlier attempt for the same attachment are replaced: its host end, and the peer with it. Any other interface of the
// requested name in the container is [ErrNameTaken] (CNI specification 1.1.0, section 2, ADD).
func (s *Step) createPair(ctx context.Context, node *netlink.Handle, ep endpoint.Endpoint, namespace *endpoint.Namespace) (endpoint.Endpoint, error) {
	a := ep.Spec.Attachment
	hostText, containerText := v1.InterfaceMACs(a.ContainerID, a.IfName)
	hostMAC, hostHW := macOf(hostText)
	containerMAC, containerHW := macOf(containerText)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = a.HostEnd(), hostHW, cmp.Or(ep.Spec.MTU, s.mtu())
	// One queue each way. The kernel's default is one for each possible CPU, with objects in sysfs for each: on 2 CPUs 0.1
	// ms of 0.4. A veth takes no lock to transmit, and receives without its queues unless it has XDP or GRO.
	attrs.NumTxQueues, attrs.NumRxQueues = 1, 1
	pair := &netlink.Veth{
		LinkAttrs: attrs, PeerName: a.IfName, PeerHardwareAddr: containerHW, PeerNamespace: netlink.NsFd(namespace.FD()), PeerTxQLen: -1,
	}
	err := node.LinkAdd(pair)
	if errors.Is(err, unix.EEXIST) {
		earlier, findErr := findHostEnd(node, endpoint.Endpoint{Spec: ep.Spec})
		if findErr != nil && !errors.Is(findErr, ErrNoLink) {
			return ep, findErr
		}
		if findErr == nil {
			s.log.Info("interface of an earlier attempt is replaced", "container", a.ContainerID, "ifname", a.IfName, "ifindex", earlier.Attrs().Index)
			if err := s.Remove(ctx, earlier.Attrs().Index); err != nil {
				return ep, err
			}
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
	ep.Host = endpoint.Interface{Name: attrs.Name, Index: pair.Index, MAC: hostMAC}
	ep.Container = endpoint.Interface{Name: a.IfName, MAC: containerMAC}
	if err := node.LinkSetAlias(pair, aliasOf(ep)); err != nil {
		return ep, fmt.Errorf("set the alias of %s: %w", attrs.Name, err)
	}
	return ep, nil
}

// carrierRetry is how often a link without a carrier is checked.
const carrierRetry = time.Millisecond

// WaitForCarrier returns when the interface passes packets. The kernel drops packets for a while after both ends of a
// pair are up, until its link-watch work has run for each of them. Since Linux 6.8 a request for the link runs that
// work before it is answered (rtnl_getlink); earlier kernels do it in their own time, mostly within a millisecond.
func WaitForCarrier(ctx context.Context, handle *netlink.Handle, index int) error {
	for {
		l, err := handle.LinkByIndex(index)
		if nl.IsNoLink(err) {
			return fmt.Errorf("link %d: %w", index, ErrNoLink)
		}
		if err != nil {
			return fmt.Errorf("get link %d: %w", index, err)
		}
		if l.Attrs().OperState == netlink.OperUp {
			return nil
		}
		if err := task.Sleep(ctx, carrierRetry); err != nil {
			return fmt.Errorf("wait for the carrier of %s: %w", l.Attrs().Name, err)
		}
	}
}
