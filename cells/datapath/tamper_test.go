package datapath_test

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/rtnl"
)

// setName and setMAC are what Porin never asks for.
func setName(link int, name string) rtnl.Request {
	return setLink(link, unix.IFLA_IFNAME, append([]byte(name), 0))
}

func setMAC(link int, mac rtnl.MAC) rtnl.Request { return setLink(link, unix.IFLA_ADDRESS, mac[:]) }

func setLink(link int, attribute uint16, value []byte) rtnl.Request {
	body := make([]byte, unix.SizeofIfInfomsg)
	binary.NativeEndian.PutUint32(body[4:], uint32(link))
	body = binary.NativeEndian.AppendUint16(body, uint16(4+len(value)))
	body = binary.NativeEndian.AppendUint16(body, attribute)
	body = append(body, value...)
	for len(body)%4 != 0 {
		body = append(body, 0)
	}
	return rtnl.Request{What: "change a link", Type: unix.RTM_SETLINK, Body: body}
}
