package testutil

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// nftObjects lists the tables, chains and rules of nftables by name and handle: a rule that was changed or replaced
// has another handle. It is empty when the kernel has no nftables, or without root.
func nftObjects() (lines []string) {
	for _, kind := range []uint16{unix.NFT_MSG_GETTABLE, unix.NFT_MSG_GETCHAIN, unix.NFT_MSG_GETRULE} {
		lines = append(lines, nftList(kind)...)
	}
	return lines
}

func nftList(kind uint16) (lines []string) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	var request []byte
	request = binary.NativeEndian.AppendUint32(request, unix.SizeofNlMsghdr+4)
	request = binary.NativeEndian.AppendUint16(request, unix.NFNL_SUBSYS_NFTABLES<<8|kind)
	request = binary.NativeEndian.AppendUint16(request, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request = append(request, make([]byte, 8+4)...) // sequence, port; struct nfgenmsg: all families
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil
	}
	buf := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return lines
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofNlMsghdr; {
			size, typ := binary.NativeEndian.Uint32(rest), binary.NativeEndian.Uint16(rest[4:])
			if typ == unix.NLMSG_DONE || typ == unix.NLMSG_ERROR || size < unix.SizeofNlMsghdr+4 || int(size) > len(rest) {
				return lines
			}
			lines = append(lines, nftLine(kind, rest[unix.SizeofNlMsghdr:size]))
			rest = rest[min(int(size+3)&^3, len(rest)):]
		}
	}
}

// nftLine names an object by its family and its attributes 1 to 3, which are names and the handle in all three kinds
// (the use count of a table or chain among them is left out).
func nftLine(kind uint16, body []byte) string {
	line := fmt.Sprintf("nft kind %d family %d", kind, body[0])
	for rest := body[4:]; len(rest) >= 4; {
		size, typ := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])&^uint16(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER)
		if size < 4 || size > len(rest) {
			break
		}
		if typ <= 3 && !(kind == unix.NFT_MSG_GETTABLE && typ == unix.NFTA_TABLE_USE) {
			line += fmt.Sprintf(" %q", rest[4:size])
		}
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	return line
}
