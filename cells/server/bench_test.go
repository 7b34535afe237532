package server

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	v1 "porin.dev/porin/api/v1"
)

// BenchmarkMiddleware is what a request costs before and after its handler: it is on the path of every ADD.
func BenchmarkMiddleware(b *testing.B) {
	parts := handle(http.MethodGet, "/v1/endpoint/{id}", func(http.ResponseWriter, *http.Request) {})
	s, err := New(DefaultConfig(), Info{}, slog.New(slog.DiscardHandler), parts)
	if err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/v1/endpoint/7", nil)
	r.Header.Set(v1.TimeoutHeader, "30s")
	r = r.WithContext(context.WithValue(r.Context(), connectionKey{}, &connection{received: &descriptor{}}))
	w := httptest.NewRecorder()
	b.ReportAllocs()
	for b.Loop() {
		s.router.ServeHTTP(w, r)
	}
}
