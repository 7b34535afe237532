package server

import (
	"time"

	"porin.dev/porin/internal/httpx"
)

// limits keep one caller from holding what others need. There is none on the time that a handler takes: that is the
// caller's own, see deadlines.
type limits struct {
	header      time.Duration // to send a request's header
	read        time.Duration // to send a request, with its body
	answer      time.Duration // to take an answer, from its first byte
	idle        time.Duration // of a connection between two requests
	deadline    time.Duration // that a caller may ask for
	headerBytes int
	bodyBytes   int64
}

func defaultLimits() limits {
	return limits{
		header:      5 * time.Second,
		read:        10 * time.Second,
		answer:      10 * time.Second,
		idle:        2 * time.Minute,
		deadline:    10 * time.Minute,
		headerBytes: 16 << 10,
		bodyBytes:   httpx.MaxBody,
	}
}
