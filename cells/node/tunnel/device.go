package tunnel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/link"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/nl"
)

// Device is the name of the VXLAN device.
const Device = link.TunnelDevice

// MAC is the link address of the device on every node.
var MAC = net.HardwareAddr{0x02, 'p', 'o', 'r', 'i', 'n'}

// addrGenNone (IN6_ADDR_GEN_MODE_NONE) is that the device gives itself no link-local address.
const addrGenNone = 1

// find returns the device, or nil.
func (t *Tunnel) find() (*netlink.Vxlan, error) {
	found, err := t.handle.LinkByName(Device)
	if nl.IsNoLink(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", Device, err)
	}
	vxlan, ok := found.(*netlink.Vxlan)
	if !ok {
		return nil, ErrForeign
	}
	return vxlan, nil
}

// device returns the device as it should be, except addresses and programs. A device that cannot be changed is
// replaced, down.
func (t *Tunnel) device(mtu int) (*netlink.Vxlan, error) {
	d, err := t.find()
	if err != nil {
		return nil, err
	}
	if d != nil && (!d.FlowBased || d.Port != t.cfg.Port || d.Learning) {
		if err := t.handle.LinkDel(d); err != nil {
			return nil, fmt.Errorf("remove %s, which is not as it should be: %w", Device, err)
		}
		d = nil
	}
	if d == nil {
		if d, err = t.create(mtu); err != nil {
			return nil, err
		}
	}
	return d, t.adjust(d, mtu)
}

func (t *Tunnel) create(mtu int) (*netlink.Vxlan, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = Device, MAC, mtu
	err := t.handle.LinkAdd(&netlink.Vxlan{LinkAttrs: attrs, FlowBased: true, Port: t.cfg.Port})
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil, ErrUnsupported
	case err != nil && !errors.Is(err, unix.EEXIST):
		return nil, fmt.Errorf("make the VXLAN device %s: %w", Device, err)
	}
	d, findErr := t.find()
	switch {
	case findErr != nil:
		return nil, findErr
	case d == nil && err != nil: // not the name is there already, but such a device
		return nil, ErrPort
	case d == nil:
		return nil, fmt.Errorf("make the VXLAN device %s: it was removed meanwhile", Device)
	}
	t.log.Info("VXLAN device made", "ifname", Device, "ifindex", d.Index, "port", t.cfg.Port)
	return d, nil
}

// adjust sets what may be set at any time.
func (t *Tunnel) adjust(d *netlink.Vxlan, mtu int) error {
	var errs []error
	if !slices.Equal(d.HardwareAddr, MAC) {
		errs = append(errs, t.handle.LinkSetHardwareAddr(d, MAC))
		t.log.Info("MAC of the VXLAN device set", "ifname", Device, "mac", MAC.String())
	}
	if d.MTU != mtu {
		errs = append(errs, t.handle.LinkSetMTU(d, mtu))
		t.log.Info("MTU of the VXLAN device set", "ifname", Device, "mtu", mtu)
	}
	if d.RawFlags&unix.IFF_NOARP == 0 {
		errs = append(errs, t.handle.LinkSetARPOff(d))
	}
	if d.RawFlags&unix.IFF_UP == 0 { // before it has an address
		err := t.handle.LinkSetIP6AddrGenMode(d, addrGenNone)
		if !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, netns.In(int(t.namespace.Fd()), setSysctls))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("set up %s: %w", Device, err)
	}
	return nil
}

// sysctls are the device's. rp_filter is loose (2): from_tunnel has verified the source, and replies may leave by
// another device while a mode changes.
var sysctls = map[string]string{
	"net/ipv4/conf/" + Device + "/rp_filter":    "2",
	"net/ipv4/conf/" + Device + "/forwarding":   "1",
	"net/ipv6/conf/" + Device + "/disable_ipv6": "0",
	"net/ipv6/conf/" + Device + "/accept_ra":    "0",
}

// setSysctls leaves out sysctls that the kernel does not have.
func setSysctls() (err error) {
	for name, want := range sysctls {
		path := "/proc/sys/" + name
		is, readErr := os.ReadFile(path)
		if os.IsNotExist(readErr) || readErr == nil && strings.TrimSpace(string(is)) == want {
			continue
		}
		if writeErr := os.WriteFile(path, []byte(want), 0); writeErr != nil {
			err = errors.Join(err, writeErr)
		}
	}
	return err
}

// up has packets pass.
func (t *Tunnel) up(d *netlink.Vxlan) error {
	if d.RawFlags&unix.IFF_UP != 0 {
		return nil
	}
	err := t.handle.LinkSetUp(d)
	if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EEXIST) {
		return ErrPort
	}
	if err != nil {
		return fmt.Errorf("bring up %s: %w", Device, err)
	}
	return nil
}

// addresses gives the device these addresses, and takes all others from it.
func (t *Tunnel) addresses(d *netlink.Vxlan, want []netip.Addr) (err error) {
	has, err := t.addressesOf(d)
	if err != nil {
		return err
	}
	for _, addr := range want {
		if !slices.Contains(has, addr) {
			if addErr := t.handle.AddrAdd(d, address(addr)); addErr != nil && !errors.Is(addErr, unix.EEXIST) {
				err = errors.Join(err, fmt.Errorf("give %s the address %s: %w", Device, addr, addErr))
			}
		}
	}
	for _, addr := range has {
		if !slices.Contains(want, addr) {
			if delErr := t.handle.AddrDel(d, address(addr)); delErr != nil && !errors.Is(delErr, unix.EADDRNOTAVAIL) {
				err = errors.Join(err, fmt.Errorf("take the address %s from %s: %w", addr, Device, delErr))
			}
		}
	}
	return err
}

// addressesOf are the device's addresses, without link-local ones.
func (t *Tunnel) addressesOf(d *netlink.Vxlan) (addrs []netip.Addr, err error) {
	all, err := nl.Dump(func() ([]netlink.Addr, error) { return t.handle.AddrList(d, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", Device, err)
	}
	for _, a := range all {
		if addr := nl.Addr(a.IP); !addr.IsLinkLocalUnicast() {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// address is an address without duplicate detection, which no host could answer, and without a route to a network.
func address(addr netip.Addr) *netlink.Addr {
	flags := unix.IFA_F_NOPREFIXROUTE
	if addr.Is6() {
		flags |= unix.IFA_F_NODAD
	}
	return &netlink.Addr{IPNet: nl.HostNet(addr), Flags: flags}
}
