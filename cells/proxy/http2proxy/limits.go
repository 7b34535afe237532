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
func DefaultLimits() Limits {
	return Limits{
		HeadBytes: 64 << 10,
		Headers:   128,
		Interims:  32,
		Streams:   250,
		Handshake: 10 * time.Second,
		Frame:     30 * time.Second,
		Dial:      10 * time.Second,
		Idle:      5 * time.Minute,
		Stall:     time.Hour,
		Write:     5 * time.Minute,
		Linger:    time.Second,
	}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	return Limits{
		HeadBytes: cmp.Or(l.HeadBytes, d.HeadBytes),
		Headers:   cmp.Or(l.Headers, d.Headers),
		Interims:  cmp.Or(l.Interims, d.Interims),
		Streams:   cmp.Or(l.Streams, d.Streams),
		Handshake: cmp.Or(l.Handshake, d.Handshake),
		Frame:     cmp.Or(l.Frame, d.Frame),
		Dial:      cmp.Or(l.Dial, d.Dial),
		Idle:      cmp.Or(l.Idle, d.Idle),
		Stall:     cmp.Or(l.Stall, d.Stall),
		Write:     cmp.Or(l.Write, d.Write),
		Linger:    cmp.Or(l.Linger, d.Linger),
	}
}
