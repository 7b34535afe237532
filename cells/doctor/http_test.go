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

// numbers is a checker of one kind that is about addresses.
type numbers struct{ things }

func (n *numbers) Kinds() []Kind {
	return []Kind{{Name: n.kind, Repair: "mend it", About: Addresses}}
}

func TestTheCallsOfTheDoctor(t *testing.T) {
	lamps := &things{owner: "lamps", kind: "lamp-dark", broken: map[string]string{"hall": ""}}
	n := &numbers{things{owner: "numbers", kind: "number-odd", broken: map[string]string{"seven": ""}}}
	d, err := New(Config{}, slog.New(slog.DiscardHandler), lamps, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		call       string
		code       int
		has, lacks string
	}{
		{"GET /v1/doctor", 200, "hall", "repaired"},
		{"GET /v1/doctor?about=addresses", 200, "seven", "hall"},
		{"GET /v1/doctor?about=hats", 400, `about=\"hats\": want one of addresses`, "hall"},
		{"POST /v1/doctor?about=hats", 400, `want one of addresses`, "hall"},
		{"GET /v1/doctor?about=addresses&endpoint=x", 400, "want an attachment", "hall"},
		{"POST /v1/doctor?about=addresses", 200, `"findings":[]`, "hall"},
		{"GET /v1/doctor?about=addresses", 200, `"findings":[]`, "repaired"},
		{"POST /v1/doctor", 200, `"repaired":[{"kind":"lamp-dark"`, "seven"},
		{"GET /v1/doctor", 200, `"findings":[]`, "hall"},
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
