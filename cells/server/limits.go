package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
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
	connections int // at once; others wait in the socket's backlog
	freeBytes   int // of a body that are read at once; only largeBodies bodies are read further at the same time
	largeBodies int
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
		connections: 256,
		freeBytes:   64 << 10,
		largeBodies: 8,
	}
}

// drainFactor bounds, by the limit, how much of a body that is too large is read and thrown away.
const drainFactor = 8

// limitBodies refuses a body whose declared length is too large, and cuts off a longer body than declared. Large bodies
// are read a few at a time: callers that do not finish them would fill the memory.
func limitBodies(l limits) func(http.Handler) http.Handler {
	limit, slots := l.bodyBytes, make(chan struct{}, l.largeBodies)
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > limit {
				// Most clients write all before they read: to hear the answer they must get that far.
				_, _ = io.CopyN(io.Discard, r.Body, drainFactor*limit)
				httpx.WriteProblem(w, fault.New(fault.TooLarge, fmt.Sprintf("read body: %d bytes, larger than %d", r.ContentLength, limit)))
				return
			}
			if r.Body != http.NoBody {
				body := &slotBody{ReadCloser: r.Body, free: l.freeBytes, slots: slots, wait: l.read}
				defer body.release()
				// net/http's own writer: it knows MaxBytesReader, and closes the connection.
				r.Body = http.MaxBytesReader(w.(*recorder).Unwrap(), body, limit)
			}
			next.ServeHTTP(w, r)
		})
	}
}

// slotBody is a body that holds a slot while its bytes after the free ones are read.
type slotBody struct {
	io.ReadCloser
	free  int // bytes that are left of the free ones
	slots chan struct{}
	wait  time.Duration // for a slot; each holder has a deadline for reading its request
	held  bool
}

// Read returns os.ErrDeadlineExceeded when there is no slot in time.
func (b *slotBody) Read(buf []byte) (n int, err error) {
	if b.free > 0 {
		n, err = b.ReadCloser.Read(buf[:min(len(buf), b.free)])
		b.free -= n
		return n, err
	}
	if !b.held {
		select {
		case b.slots <- struct{}{}:
			b.held = true
		case <-time.After(b.wait):
			return 0, os.ErrDeadlineExceeded
		}
	}
	if n, err = b.ReadCloser.Read(buf); err != nil {
		b.release()
	}
	return n, err
}

func (b *slotBody) release() {
	if b.held {
		<-b.slots
		b.held = false
	}
}

// deadlines ends a request's context a little before its caller's time is up, as it says in v1.TimeoutHeader: the
// work has to be undone, and the caller informed. No call gets more than maximum. Without that header only
// the caller's leaving ends the context.
func deadlines(maximum time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := r.Header.Get(v1.TimeoutHeader)
			if text == "" {
				next.ServeHTTP(w, r)
				return
			}
			timeout, err := time.ParseDuration(text)
			if err != nil || timeout <= 0 {
				httpx.WriteProblem(w, fault.New(fault.Invalid, fmt.Sprintf("header %s: %.32q: want a duration above zero, such as 30s", v1.TimeoutHeader, text)))
				return
			}
			reserve := min(timeout/10, time.Second) // for the way back
			ctx, cancel := context.WithTimeout(r.Context(), min(timeout-reserve, maximum))
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}
