package link

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/nl"
)

// hostEndName matches what v1.HostInterfaceName gives.
var hostEndName = regexp.MustCompile(`^` + v1.HostInterfacePrefix + `[a-z2-7]{12}$`)

// TunnelDevice is the name of the VXLAN device that leads to pods of other nodes.
const TunnelDevice = "porin-vxlan"

// ProxyDevice is the name of the device that leads to the proxy, and ProxyDevicePeer is the other end of its pair.
const (
	ProxyDevice     = "porin-l7"
	ProxyDevicePeer = "porin-l7-peer"
)

// IsProxyDevice reports whether the name is of one of the two.
func IsProxyDevice(name string) bool { return name == ProxyDevice || name == ProxyDevicePeer }

// IsHostEndName reports whether only a host end of Porin's has such a name.
func IsHostEndName(name string) bool { return hostEndName.MatchString(name) }

// IsHostEnd reports whether the interface bears Porin's mark: a veth with the name of a host end.
func IsHostEnd(l netlink.Link) bool {
	return l.Type() == "veth" && hostEndName.MatchString(l.Attrs().Name)
}

// HostEnds lists the interfaces that bear Porin's mark.
func HostEnds(handle *netlink.Handle) (ends []netlink.Link, err error) {
	all, err := nl.Dump(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range all {
		if IsHostEnd(l) {
			ends = append(ends, l)
		}
	}
	return ends, nil
}

// AttachmentOf returns whose a host end is, as its alias says: [endpoint.Unnamed] if it does not.
func AttachmentOf(hostEnd netlink.Link) endpoint.Attachment {
	a, _ := parseAlias(hostEnd.Attrs().Name, hostEnd.Attrs().Alias)
	return a
}

// findHostEnd returns the attachment's own host end: by its index, or by name when none is on record. It wraps
// [ErrNoLink] or [ErrForeign].
func findHostEnd(handle *netlink.Handle, ep endpoint.Endpoint) (l netlink.Link, err error) {
	name := ep.Spec.Attachment.HostEnd()
	if ep.Host.Index != 0 {
		l, err = handle.LinkByIndex(ep.Host.Index)
	} else {
		l, err = handle.LinkByName(name)
	}
	if nl.IsNoLink(err) {
		return nil, fmt.Errorf("%s, index %d: %w", name, ep.Host.Index, ErrNoLink)
	}
	if err != nil {
		return nil, fmt.Errorf("get link %s, index %d: %w", name, ep.Host.Index, err)
	}
	if l.Attrs().Name != name || l.Type() != "veth" {
		return nil, fmt.Errorf("index %d is %s %q, not veth %q: %w", l.Attrs().Index, l.Type(), l.Attrs().Name, name, ErrForeign)
	}
	return l, nil
}

// findRenamed finds the attachment's host end by its alias, after another program has renamed it. It returns nil if
// there is none.
func findRenamed(handle *netlink.Handle, ep endpoint.Endpoint) (netlink.Link, error) {
	if ep.Host.Index != 0 {
		l, err := handle.LinkByIndex(ep.Host.Index)
		if nl.IsNoLink(err) || err == nil && !isAliasOf(l, ep) {
			return nil, nil
		}
		return l, err
	}
	links, err := nl.Dump(handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	for _, l := range links {
		if isAliasOf(l, ep) {
			return l, nil
		}
	}
	return nil, nil
}

func isAliasOf(l netlink.Link, ep endpoint.Endpoint) bool {
	a := ep.Spec.Attachment
	named, _ := parseAlias(a.HostEnd(), l.Attrs().Alias)
	return l.Type() == "veth" && !a.IsUnnamed() && named == a
}

// aliasOf is the text on a host end: "containerID:ifname began=NANOSECONDS". A DEL without an agent reads in it when
// the ADD began (CLOCK_BOOTTIME), and leaves the link of a later ADD alone. It leaves out an ID that is too long for an
// alias.
func aliasOf(ep endpoint.Endpoint) string {
	const maxAlias = 255 // IFALIASZ less the zero at its end
	began := "began=" + strconv.FormatInt(ep.Spec.Began.Nanoseconds(), 10)
	if whole := ep.Spec.Attachment.String() + " " + began; len(whole) <= maxAlias {
		return whole
	}
	return began
}

// parseAlias is the reverse of aliasOf. The attachment is [endpoint.Unnamed] when the alias does not say whose the link
// is, or names one whose host end has another name; began is 0 when it does not say.
func parseAlias(hostEnd, alias string) (a endpoint.Attachment, began time.Duration) {
	whose, rest, _ := strings.Cut(alias, " ")
	if text, ok := strings.CutPrefix(whose, "began="); ok {
		whose, rest = "", "began="+text
	}
	if text, ok := strings.CutPrefix(rest, "began="); ok {
		if ns, err := strconv.ParseInt(text, 10, 64); err == nil && ns > 0 {
			began = time.Duration(ns)
		}
	}
	a, err := endpoint.ParseAttachment(whose)
	if err != nil || a.HostEnd() != hostEnd {
		a = endpoint.Unnamed(hostEnd)
	}
	return a, began
}

func macOf(text string) (endpoint.MAC, net.HardwareAddr) {
	hw, _ := net.ParseMAC(text) // of v1.InterfaceMACs, which are well formed
	return endpoint.MAC(hw), hw
}
