package httpproxy

import "time"

// Limits bounds what one connection may cost. The zero value of a field is its default.
type Limits struct {
	HeadBytes int   // of a head, and of the trailers of a body
	Headers   int   // of a head, and of the trailers of a body
	Interims  int   // responses 1xx to one request
	Discard   int64 // bytes that are read and dropped of the body of a denied request, so that the connection can be used further

	FirstByte   time.Duration // from the beginning of the connection to its first byte
	ServerFirst time.Duration // from there to a dial without a request, as the server may be one that speaks first
	Head        time.Duration // from the first byte of a head to its last one
	Dial        time.Duration
	Idle        time.Duration // between two requests
	Stall       time.Duration // during a request, without a byte in any direction
	Tunnel      time.Duration // after an upgrade, without a byte in any direction
	Linger      time.Duration // from our end of the stream to the client's
	DrainIdle   time.Duration // between two requests, once the session is to end
}

// DefaultLimits returns the limits that hold where a [Session] asks for no other.
func DefaultLimits() Limits {
	return Limits{
		HeadBytes:   64 << 10,
		Headers:     128,
		Interims:    32,
		Discard:     64 << 10,
		FirstByte:   10 * time.Second,
		ServerFirst: 500 * time.Millisecond,
		Head:        10 * time.Second,
		Dial:        10 * time.Second,
		Idle:        5 * time.Minute,
		Stall:       5 * time.Minute,
		Tunnel:      time.Hour,
		Linger:      time.Second,
		DrainIdle:   2 * time.Second,
	}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	orDefault(&l.HeadBytes, d.HeadBytes)
	orDefault(&l.Headers, d.Headers)
	orDefault(&l.Interims, d.Interims)
	orDefault(&l.Discard, d.Discard)
	orDefault(&l.FirstByte, d.FirstByte)
	orDefault(&l.ServerFirst, d.ServerFirst)
	orDefault(&l.Head, d.Head)
	orDefault(&l.Dial, d.Dial)
	orDefault(&l.Idle, d.Idle)
	orDefault(&l.Stall, d.Stall)
	orDefault(&l.Tunnel, d.Tunnel)
	orDefault(&l.Linger, d.Linger)
	orDefault(&l.DrainIdle, d.DrainIdle)
	return l
}

func orDefault[T comparable](v *T, d T) {
	if *v == *new(T) {
		*v = d
	}
}
