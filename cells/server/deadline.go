package server

import (
	"context"
	"fmt"
	"net/http"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// deadlines ends a request's context a little before its caller's time is up, as it says in v1.TimeoutHeader: what
// was done has to be undone, and the caller to hear of it. Nobody gets more than maximum. Without that header only
// the caller's leaving ends the context.
func deadlines(maximum time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text := r.Header.Get(v1.TimeoutHeader)
			if text == "" {
				next.ServeHTTP(w, r)
				return
			}
			timeout, err := parseTimeout(text)
			if err != nil {
				httpx.WriteProblem(w, err)
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), min(timeout-reserve(timeout), maximum))
			defer cancel()
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

func parseTimeout(text string) (time.Duration, error) {
	timeout, err := time.ParseDuration(text)
	if err != nil || timeout <= 0 {
		return 0, fault.New(fault.Invalid, fmt.Sprintf("header %s: %.32q: want a duration above zero, such as 30s", v1.TimeoutHeader, text))
	}
	return timeout, nil
}

// reserve is the part of a caller's time that is kept for the way back.
func reserve(timeout time.Duration) time.Duration { return min(timeout/10, time.Second) }
