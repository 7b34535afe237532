package rtnl

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// parseLink reads the body of RTM_NEWLINK and RTM_DELLINK.
func parseLink(body []byte) (Link, error) {
	if len(body) < unix.SizeofIfInfomsg {
		return Link{}, errMalformed
	}
	link := Link{
		Index:     int(int32(binary.NativeEndian.Uint32(body[4:]))),
		Flags:     binary.NativeEndian.Uint32(body[8:]),
		PeerNetNS: -1,
	}
	err := eachAttr(body, unix.SizeofIfInfomsg, link.attr)
	return link, err
}

func (l *Link) attr(typ uint16, value []byte) {
	switch typ {
	case unix.IFLA_IFNAME:
		l.Name = getString(value)
	case unix.IFLA_IFALIAS:
		l.Alias = getString(value)
	case unix.IFLA_ADDRESS:
		copy(l.MAC[:], value)
	case unix.IFLA_MTU:
		l.MTU = getU32(value)
	case unix.IFLA_GROUP:
		l.Group = getU32(value)
	case unix.IFLA_LINK:
		l.Peer = int(int32(getU32(value)))
	case unix.IFLA_LINK_NETNSID:
		l.PeerNetNS = int32(getU32(value))
	case unix.IFLA_LINKINFO:
		_ = eachAttr(value, 0, func(typ uint16, value []byte) {
			if typ == unix.IFLA_INFO_KIND {
				l.Kind = getString(value)
			}
		})
	}
}
