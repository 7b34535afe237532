package server

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
)

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
				if log.Enabled(context.Background(), level) {
					logRequest(log, level, r, rec, time.Since(began))
				}
			}()
			next.ServeHTTP(w, r)
		})
	}
}

func logRequest(log *slog.Logger, level slog.Level, r *http.Request, rec *recorder, took time.Duration) {
	attrs := []slog.Attr{
		slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.String("route", routeOf(r)),
		slog.Int("status", rec.answered()), slog.Duration("duration", took),
	}
	if rec.fault != nil {
		attrs = append(attrs, slog.Any("error", rec.fault))
	}
	log.LogAttrs(context.Background(), level, "request answered", attrs...)
}

// routeOf is the pattern that matched, or "" when none did.
func routeOf(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() }
