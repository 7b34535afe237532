package dnsname

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"
)

// Address is one address of a name, and for how long the answer that has it is valid.
type Address struct {
	Addr netip.Addr
	TTL  time.Duration
}

const (
	maxWire    = 255 // bytes of a name in a message, with all lengths
	maxLabel   = 63
	pointerBit = 0xc0
)

// ErrName is returned for bytes that are not a name.
var ErrName = errors.New("not a name")

// AppendText appends the text of the name at an offset of a message, and returns the offset behind it. Names may be
// compressed if pointers is set; then each pointer has to point to before the part that it ends.
func AppendText(text, msg []byte, off int, pointers bool) (_ []byte, next int, _ error) {
	begin, length, partBegin := len(text), 0, off
	for {
		if off >= len(msg) {
			return text, 0, ErrName
		}
		n := int(msg[off])
		switch {
		case n == 0:
			if next == 0 {
				next = off + 1
			}
			if len(text) == begin {
				return append(text, '.'), next, nil
			}
			return text[:len(text)-1], next, nil
		case n <= maxLabel:
			if length += n + 1; length >= maxWire || off+1+n > len(msg) {
				return text, 0, ErrName
			}
			text = append(appendLabel(text, msg[off+1:off+1+n]), '.')
			off += 1 + n
		case n&pointerBit == pointerBit && pointers && off+2 <= len(msg):
			if next == 0 {
				next = off + 2
			}
			to := int(binary.BigEndian.Uint16(msg[off:])) &^ (pointerBit << 8)
			if to >= partBegin {
				return text, 0, ErrName
			}
			off, partBegin = to, to
		default:
			return text, 0, ErrName
		}
	}
}

func appendLabel(text, label []byte) []byte {
	for _, c := range label {
		switch {
		case 'A' <= c && c <= 'Z':
			text = append(text, c+'a'-'A')
		case c <= ' ' || c >= 0x7f || c == '.' || c == '\\':
			text = append(text, '\\', '0'+c/100, '0'+c/10%10, '0'+c%10)
		default:
			text = append(text, c)
		}
	}
	return text
}

// Skip returns the offset behind the name at an offset of a message. It does not follow a pointer.
func Skip(msg []byte, off int) (int, error) {
	for off < len(msg) {
		n := int(msg[off])
		switch {
		case n == 0:
			return off + 1, nil
		case n <= maxLabel:
			off += 1 + n
		case n&pointerBit == pointerBit && off+2 <= len(msg):
			return off + 2, nil
		default:
			return 0, ErrName
		}
	}
	return 0, ErrName
}
