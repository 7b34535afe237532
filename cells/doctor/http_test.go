package doctor

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-chi/chi/v5"
)

// addresses is a checker of one kind that is about addresses.
type addresses struct{ things }

func (n *addresses) Kinds() []Kind {
	return []Kind{{Name: n.kind, Repair: "repair it", About: Addresses}}
}

func TestRoutes(t *testing.T) {
	checker := &things{owner: "routes", kind: "route-missing", broken: map[string]string{"por3": ""}}
	n := &addresses{things{owner: "addresses", kind: "address-reserved", broken: map[string]string{"10.0.0.7": ""}}}
	d, err := New(Config{}, slog.New(slog.DiscardHandler), checker, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		call       string
		code       int
		has, lacks string
	}{
		{"GET /v1/doctor", 200, "por3", "repaired"},
		{"GET /v1/doctor?about=addresses", 200, "10.0.0.7", "por3"},
		{"GET /v1/doctor?about=hats", 400, `about=\"hats\": want one of addresses`, "por3"},
		{"POST /v1/doctor?about=hats", 400, `want one of addresses`, "por3"},
		{"GET /v1/doctor?about=addresses&endpoint=x", 400, "want an attachment", "por3"},
		{"POST /v1/doctor?about=addresses", 200, `"findings":[]`, "por3"},
		{"GET /v1/doctor?about=addresses", 200, `"findings":[]`, "repaired"},
		{"POST /v1/doctor", 200, `"repaired":[{"kind":"route-missing"`, "10.0.0.7"},
		{"GET /v1/doctor", 200, `"findings":[]`, "por3"},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, recorder := chi.NewRouter(), httptest.NewRecorder()
			(&routes{d}).Mount(r)
			method, path, _ := strings.Cut(row.call, " ")
			request, _ := http.NewRequestWithContext(context.Background(), method, path, nil)
			r.ServeHTTP(recorder, request)
			body := recorder.Body.String()
			if recorder.Code != row.code || !strings.Contains(body, row.has) || strings.Contains(body, row.lacks) {
				t.Errorf("%s: %d %s, want %d with %s and without %s", row.call, recorder.Code, body, row.code, row.has, row.lacks)
			}
		})
	}
}
