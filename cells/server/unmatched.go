package server

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

func notFound(w http.ResponseWriter, r *http.Request) {
	httpx.WriteProblem(w, fault.New(fault.NotFound, fmt.Sprintf("no such call: %s %q; GET /v1/openapi.json lists them", r.Method, r.URL.Path)))
}

// methodNotAllowed names the methods that the path knows, as RFC 9110 (15.5.6) asks for.
func methodNotAllowed(routes chi.Routes) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		allowed := strings.Join(methodsOf(routes, r), ", ")
		w.Header().Set("Allow", allowed)
		err := fmt.Errorf("no such call: %s %q; this path takes %s", r.Method, r.URL.Path, allowed)
		httpx.WriteStatusProblem(w, http.StatusMethodNotAllowed, fault.Invalid, err)
	}
}

func methodsOf(routes chi.Routes, r *http.Request) []string {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	var methods []string
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		if routes.Match(chi.NewRouteContext(), method, path) {
			methods = append(methods, method)
		}
	}
	return methods
}
