package rtnl

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

var errMalformed = errors.New("malformed netlink message")

// eachAttr calls visit for each attribute of a body after its fixed header, with the flag bits taken off the type.
func eachAttr(body []byte, fixed int, visit func(typ uint16, value []byte)) error {
	if len(body) < fixed {
		return errMalformed
	}
	for rest := body[fixed:]; len(rest) > 0; {
		if len(rest) < attrHdrLen {
			return errMalformed
		}
		size := int(binary.NativeEndian.Uint16(rest))
		if size < attrHdrLen || size > len(rest) {
			return errMalformed
		}
		typ := binary.NativeEndian.Uint16(rest[2:]) &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
		visit(typ, rest[attrHdrLen:size])
		rest = rest[min(align(size), len(rest)):]
	}
	return nil
}

func align(n int) int { return (n + alignTo - 1) &^ (alignTo - 1) }

// The readers below answer zero for a value of another length: an attribute that a later kernel changed is no reason
// to fail.

func getU32(value []byte) uint32 {
	if len(value) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(value)
}

func getString(value []byte) string {
	text, _, _ := bytes.Cut(value, []byte{0})
	return string(text)
}
