package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// recorder remembers what was answered, for the middleware around the handlers.
type recorder struct {
	http.ResponseWriter
	timeout time.Duration // to take the answer
	status  int           // 0 until the answer has begun
	fault   error         // behind a problem body
}

// record makes every ResponseWriter further in a *recorder.
func record(timeout time.Duration) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(&recorder{ResponseWriter: w, timeout: timeout}, r)
		})
	}
}

// WriteHeader also gives the caller its time to take the answer. A handler that streams sets a deadline of its own
// after its first write.
func (rec *recorder) WriteHeader(status int) {
	if rec.status == 0 {
		rec.status = status
		if w, ok := rec.ResponseWriter.(interface{ SetWriteDeadline(time.Time) error }); ok {
			_ = w.SetWriteDeadline(time.Now().Add(rec.timeout))
		}
	}
	rec.ResponseWriter.WriteHeader(status)
}

func (rec *recorder) Write(body []byte) (int, error) {
	if rec.status == 0 {
		rec.WriteHeader(http.StatusOK)
	}
	return rec.ResponseWriter.Write(body)
}

// RecordFault is httpx.FaultRecorder.
func (rec *recorder) RecordFault(err error) { rec.fault = err }

// Unwrap is for http.ResponseController.
func (rec *recorder) Unwrap() http.ResponseWriter { return rec.ResponseWriter }

// answered is the status as the caller sees it: net/http sends 200 when a handler wrote nothing.
func (rec *recorder) answered() int {
	if rec.status == 0 {
		return http.StatusOK
	}
	return rec.status
}

// logRequests logs each request at debug, and at warn when the agent was at fault or out of something.
func logRequests(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec, began := w.(*recorder), time.Now()
			defer func() {
				level := slog.LevelDebug
				if rec.answered() >= http.StatusInternalServerError {
					level = slog.LevelWarn
				}
				if !log.Enabled(context.Background(), level) {
					return
				}
				attrs := []slog.Attr{
					slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.String("route", routeOf(r)),
					slog.Int("status", rec.answered()), slog.Duration("duration", time.Since(began)),
				}
				if rec.fault != nil {
					attrs = append(attrs, slog.Any("error", rec.fault))
				}
				log.LogAttrs(context.Background(), level, "request answered", attrs...)
			}()
			next.ServeHTTP(w, r)
		})
	}
}

// routeOf is the pattern that matched, or "" when none did.
func routeOf(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() }

// recoverPanics answers a panic with a problem and logs its stack. When the answer had begun already, the connection
// is cut: the caller must not take half an answer for a whole one.
func recoverPanics(log *slog.Logger) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer func() {
				switch cause := recover(); cause {
				case nil:
					return
				case http.ErrAbortHandler: // a handler's way to cut the connection, not a bug
					panic(cause)
				default:
					log.Error("handler panicked", "method", r.Method, "route", routeOf(r), "error", fmt.Sprint(cause), "stack", string(debug.Stack()))
				}
				if w.(*recorder).status != 0 {
					panic(http.ErrAbortHandler)
				}
				httpx.WriteProblem(w, fault.New(fault.Internal, "the agent ran into a bug; its log has the stack"))
			}()
			next.ServeHTTP(w, r)
		})
	}
}

// requests measures what is asked of the API.
type requests struct{ *prometheus.HistogramVec }

func newRequests() *requests {
	return &requests{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "porin_api_request_duration_seconds",
		Help:    "How long requests of the API took, by method, route and HTTP status.",
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 10, 60},
	}, []string{"method", "route", "status"})}
}

// measure counts a request that no route takes under method and route "other": a caller must not choose how many time
// series there are.
func (q *requests) measure(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		defer func() {
			method, route := r.Method, routeOf(r)
			if route == "" {
				method, route = "other", "other"
			}
			status := strconv.Itoa(w.(*recorder).answered())
			q.WithLabelValues(method, route, status).Observe(time.Since(began).Seconds())
		}()
		next.ServeHTTP(w, r)
	})
}
