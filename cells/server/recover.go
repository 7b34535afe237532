package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// recoverPanics answers a panic with a problem and logs its stack. When the answer had begun already, the connection
// is cut: the caller must not take half an answer for a whole one.
func recoverPanics(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				if cause := recover(); cause != nil {
					answerPanic(log, w.(*recorder), r, cause)
				}
			}()
			next.ServeHTTP(w, r)
		})
	}
}

func answerPanic(log *slog.Logger, rec *recorder, r *http.Request, cause any) {
	if cause == http.ErrAbortHandler { // a handler's way to cut the connection, not a bug
		panic(cause)
	}
	log.Error("handler panicked", "method", r.Method, "route", routeOf(r), "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
	if rec.status != 0 {
		panic(http.ErrAbortHandler)
	}
	httpx.WriteProblem(rec, fault.New(fault.Internal, "the agent ran into a bug; its log has the stack"))
}
