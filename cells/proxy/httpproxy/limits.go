package httpproxy

import (
	"cmp"
	"time"
)

// Limits bounds what one connection may cost. The zero value of a field is its default.
type Limits struct {
	HeadBytes int   // of a head, and of the trailers of a body
	Headers   int   // of a head, and of the trailers of a body
	Interims  int   // responses 1xx to one request
	Discard   int64 // bytes that are read and dropped of the body of a denied request, so that the connection can be used further

	FirstByte time.Duration // from the beginning of the connection to its first byte
	Head      time.Duration // from the first byte of a head to its last one
	Dial      time.Duration
	Idle      time.Duration // between two requests
	Stall     time.Duration // during a request, without a byte in any direction
	Tunnel    time.Duration // after an upgrade, without a byte in any direction
	Linger    time.Duration // from our end of the stream to the client's
	DrainIdle time.Duration // between two requests, once the session is to end
}

// DefaultLimits returns the limits that hold where a [Session] asks for no other.
func DefaultLimits() Limits { return Limits{}.withDefaults() }

func (l Limits) withDefaults() Limits {
	return Limits{
		HeadBytes: cmp.Or(l.HeadBytes, 64<<10),
		Headers:   cmp.Or(l.Headers, 128),
		Interims:  cmp.Or(l.Interims, 32),
		Discard:   cmp.Or(l.Discard, 64<<10),
		FirstByte: cmp.Or(l.FirstByte, 10*time.Second),
		Head:      cmp.Or(l.Head, 10*time.Second),
		Dial:      cmp.Or(l.Dial, 10*time.Second),
		Idle:      cmp.Or(l.Idle, 5*time.Minute),
		Stall:     cmp.Or(l.Stall, 5*time.Minute),
		Tunnel:    cmp.Or(l.Tunnel, time.Hour),
		Linger:    cmp.Or(l.Linger, time.Second),
		DrainIdle: cmp.Or(l.DrainIdle, 2*time.Second),
	}
}
