package http2proxy

import (
	"cmp"
	"time"
)

// Limits bounds what one connection may cost. The zero value of a field is its default.
type Limits struct {
	HeadBytes int // of a header block, compressed or not
	Headers   int // of a header block
	Interims  int // responses 1xx to one request
	Streams   int // at a time

	Handshake time.Duration // from the beginning of a connection to the peer's SETTINGS
	Frame     time.Duration // from the first byte of a frame to its last one, or that of its header block
	Dial      time.Duration
	Idle      time.Duration // without a stream
	Stall     time.Duration // of a stream, without a frame in any direction
	Write     time.Duration // in which a peer takes nothing of what is sent to it
	Linger    time.Duration // from our end of the stream to the client's, and from the first GOAWAY to the last one
}

// DefaultLimits returns the limits that hold where a [Session] asks for no other.
func DefaultLimits() Limits { return Limits{}.withDefaults() }

func (l Limits) withDefaults() Limits {
	return Limits{
		HeadBytes: cmp.Or(l.HeadBytes, 64<<10),
		Headers:   cmp.Or(l.Headers, 128),
		Interims:  cmp.Or(l.Interims, 32),
		Streams:   cmp.Or(l.Streams, 250),
		Handshake: cmp.Or(l.Handshake, 10*time.Second),
		Frame:     cmp.Or(l.Frame, 30*time.Second),
		Dial:      cmp.Or(l.Dial, 10*time.Second),
		Idle:      cmp.Or(l.Idle, 5*time.Minute),
		Stall:     cmp.Or(l.Stall, time.Hour),
		Write:     cmp.Or(l.Write, 5*time.Minute),
		Linger:    cmp.Or(l.Linger, time.Second),
	}
}
