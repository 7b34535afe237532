package server

import (
	"fmt"
	"io"
	"net/http"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// drainFactor bounds, by the limit, how much of a body that is too large is read and thrown away.
const drainFactor = 8

// limitBodies refuses a body that says it is too large, and cuts off one that turns out to be.
func limitBodies(limit int64) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > limit {
				// Most clients write all before they read: to hear the answer they must get that far.
				_, _ = io.CopyN(io.Discard, r.Body, drainFactor*limit)
				httpx.WriteProblem(w, fault.New(fault.TooLarge, fmt.Sprintf("read body: %d bytes, larger than %d", r.ContentLength, limit)))
				return
			}
			if r.Body != http.NoBody {
				// net/http's own writer: it knows MaxBytesReader, and closes the connection.
				r.Body = http.MaxBytesReader(w.(*recorder).Unwrap(), r.Body, limit)
			}
			next.ServeHTTP(w, r)
		})
	}
}
