package dnsproxy

import (
	"encoding/binary"
	"io"
)

const (
	headerSize = 12
	minUDP     = 512  // every client receives as much
	maxUDP     = 4096 // the largest answer over UDP that is forwarded
	maxQuery   = 4096 // the largest query that is looked at
	ourUDP     = 1232 // what replies say that we receive
)

// The bits of the second word of a header.
const (
	bitResponse    = 1 << 15
	maskOpcode     = 15 << 11
	bitTruncated   = 1 << 9
	bitRecursion   = 1 << 8 // desired
	bitAvailable   = 1 << 7 // recursion
	bitCheckingOff = 1 << 4
	maskCode       = 15
)

// Codes of responses.
const (
	codeFormat         = 1
	codeServer         = 2
	codeName           = 3
	codeNotImplemented = 4
	codeRefused        = 5
)

const (
	typeA     = 1
	typeCNAME = 5
	typeAAAA  = 28
	typeOPT   = 41
	typeSVCB  = 64
	typeHTTPS = 65
	typeANY   = 255

	classIN = 1
)

func word(m []byte, off int) uint16 { return binary.BigEndian.Uint16(m[off:]) }

// writeStream writes a message with its length, in one segment if it fits.
func writeStream(w io.Writer, m []byte) error {
	framed := binary.BigEndian.AppendUint16(make([]byte, 0, 2+len(m)), uint16(len(m)))
	_, err := w.Write(append(framed, m...))
	return err
}

// recordHeader is what follows a record's name.
type recordHeader struct {
	kind, class uint16
	ttl         uint32
	data, end   int // where the data begins and ends
}

func readRecordHeader(m []byte, off int) (h recordHeader, ok bool) {
	if off+10 > len(m) {
		return h, false
	}
	h = recordHeader{kind: word(m, off), class: word(m, off+2), ttl: binary.BigEndian.Uint32(m[off+4:]), data: off + 10}
	h.end = h.data + int(word(m, off+8))
	return h, h.end <= len(m)
}
