package redirect

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
	"porin.dev/porin/internal/nl"
)

// mac is the address of the device, to which the programs send (PROXY_MAC in bpf/lib/types.h).
var mac = net.HardwareAddr{0x02, 'p', 'o', 'r', 'l', '7'}

// sysctls are the device's. rp_filter is loose (2), whatever it is for all devices: the sources of packets are reached
// by others. accept_local is for packets that the node has masqueraded.
var sysctls = map[string]string{
	"net/ipv4/conf/" + link.ProxyDevice + "/rp_filter":    "2",
	"net/ipv4/conf/" + link.ProxyDevice + "/accept_local": "1",
	"net/ipv6/conf/" + link.ProxyDevice + "/accept_ra":    "0",
	"net/ipv6/conf/" + link.ProxyDevice + "/disable_ipv6": "0",
	"net/" + earlyDemux: "0",
}

// earlyDemux (ip-sysctl.rst) makes the kernel look for the socket of a packet before it is routed. It would find a
// connection of the proxy for packets that get another source port from the node's NAT, and end there.
const earlyDemux = "ipv4/tcp_early_demux"

// dummyAddress is the device's: the kernel's loose reverse path filter wants one. It is the IPv4 dummy address of RFC
// 7600, which no host has elsewhere; its scope is the host, so that it is no source of anything.
var dummyAddress = netip.AddrFrom4([4]byte{192, 0, 0, 8})

// addrGenNone (IN6_ADDR_GEN_MODE_NONE) is that a device gives itself no link-local address.
const addrGenNone = 1

// device makes the pair porin-l7, or what it lacks, and returns the index of the end that packets come from. Nothing
// leaves by either end: the pair is there because the kernel delivers packets only by a device.
func (r *Redirect) device() (index int, err error) {
	found, err := r.findDevice()
	if err == nil && found != nil {
		found, err = r.removeHalf(found)
	}
	if err != nil {
		return 0, err
	}
	if found == nil {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr = link.ProxyDevice, mac
		err := r.handle.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: link.ProxyDevicePeer})
		if errors.Is(err, unix.EOPNOTSUPP) {
			return 0, fmt.Errorf("make the device %s: %w: %w", link.ProxyDevice, ErrUnsupported, err)
		}
		if err == nil {
			found, err = r.handle.LinkByName(link.ProxyDevice)
		}
		if err != nil {
			return 0, fmt.Errorf("make the device %s: %w", link.ProxyDevice, err)
		}
		r.log.Info("device of the proxy made", "ifname", link.ProxyDevice, "ifindex", found.Attrs().Index)
	}
	if err := r.namespace.Load().do(setSysctls); err != nil {
		return 0, fmt.Errorf("set up %s: %w", link.ProxyDevice, err)
	}
	if !slices.Equal(found.Attrs().HardwareAddr, mac) {
		if err := r.handle.LinkSetHardwareAddr(found, mac); err != nil {
			return 0, fmt.Errorf("set the MAC of %s: %w", link.ProxyDevice, err)
		}
	}
	address := &netlink.Addr{IPNet: nl.HostNet(dummyAddress), Scope: unix.RT_SCOPE_HOST, Flags: unix.IFA_F_NOPREFIXROUTE}
	if err := r.handle.AddrReplace(found, address); err != nil {
		return 0, fmt.Errorf("give %s the address %s: %w", link.ProxyDevice, dummyAddress, err)
	}
	for _, name := range []string{link.ProxyDevicePeer, link.ProxyDevice} {
		if err := r.up(name); err != nil {
			return 0, fmt.Errorf("bring up %s: %w", name, err)
		}
	}
	return found.Attrs().Index, nil
}

// errForeign is returned when a device of the name is not Porin's.
var errForeign = fmt.Errorf("there is a device %s that is not of Porin: rename or remove it", link.ProxyDevice)

// findDevice returns nil when there is none.
func (r *Redirect) findDevice() (netlink.Link, error) {
	found, err := r.linkByName(link.ProxyDevice)
	if found == nil || err != nil {
		return nil, err
	}
	if found.Type() == "veth" && slices.Equal(found.Attrs().HardwareAddr, mac) {
		return found, nil
	}
	peer, err := r.linkByName(link.ProxyDevicePeer)
	if err == nil && (peer == nil || peer.Attrs().Index != found.Attrs().ParentIndex) {
		err = errForeign
	}
	return found, err
}

// linkByName returns nil when there is none.
func (r *Redirect) linkByName(name string) (netlink.Link, error) {
	found, err := r.handle.LinkByName(name)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s: %w", name, err)
	}
	return found, nil
}

// removeHalf removes the device, and returns none, when its other end was renamed or moved away.
func (r *Redirect) removeHalf(device netlink.Link) (netlink.Link, error) {
	peer, err := r.linkByName(link.ProxyDevicePeer)
	if err != nil || peer != nil && peer.Attrs().Index == device.Attrs().ParentIndex {
		return device, err
	}
	return nil, r.removeDevice()
}

func (r *Redirect) up(name string) error {
	found, err := r.handle.LinkByName(name)
	if err != nil || found.Attrs().RawFlags&unix.IFF_UP != 0 {
		return err
	}
	err = r.handle.LinkSetIP6AddrGenMode(found, addrGenNone)
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	return r.handle.LinkSetUp(found)
}

// removeDevice sets the kernel's default of the setting first: who goes on after a kill finds the device.
func (r *Redirect) removeDevice() error {
	found, err := r.findDevice()
	if errors.Is(err, errForeign) {
		return nil
	}
	if err != nil {
		return err
	}
	if found == nil && r.listeners == nil {
		return nil
	}
	err = r.namespace.Load().do(func() error { return os.WriteFile("/proc/sys/net/"+earlyDemux, []byte("1"), 0) })
	if err != nil {
		return fmt.Errorf("set %s: %w", earlyDemux, err)
	}
	if found == nil {
		return nil
	}
	if err := r.handle.LinkDel(found); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove %s: %w", link.ProxyDevice, err)
	}
	return nil
}

// wrongSysctls returns the values of sysctls that are not as they should be. It leaves out sysctls that the kernel does
// not have.
func wrongSysctls() (wrong map[string]string, err error) {
	wrong = map[string]string{}
	for name, want := range sysctls {
		is, readErr := os.ReadFile("/proc/sys/" + name)
		if text := strings.TrimSpace(string(is)); readErr == nil && text != want {
			wrong[name] = text
		} else if readErr != nil && !os.IsNotExist(readErr) {
			err = errors.Join(err, readErr)
		}
	}
	return wrong, err
}

func setSysctls() error {
	wrong, err := wrongSysctls()
	for name := range wrong {
		err = errors.Join(err, os.WriteFile("/proc/sys/"+name, []byte(sysctls[name]), 0))
	}
	return err
}
