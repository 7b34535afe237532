package server

import (
	"fmt"
	"net/http"
	"os"
	"strings"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/openapi"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// newRouter puts the middleware, the server's own routes and the cells' together. The order of the middleware
// is the order of the calls: the first one sees failures of the later ones.
func (s *Server) newRouter() chi.Router {
	r := chi.NewRouter()
	r.Use(
		record(s.limits.answer),
		closeDescriptors,
		s.requests.measure,
		logRequests(s.log),
		recoverPanics(s.log),
		refuseUnauthorized,
		deadlines(s.limits.deadline),
		limitBodies(s.limits),
	)
	r.NotFound(notFound)
	r.MethodNotAllowed(methodNotAllowed(r))
	r.Method(http.MethodGet, "/v1/openapi.json", http.HandlerFunc(document))
	r.Method(http.MethodGet, "/v1/status", s.status())
	for _, routes := range s.parts.Routes {
		routes.Mount(r)
	}
	return r
}

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

// document answers GET /v1/openapi.json.
func document(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openapi.Document())
}

// status answers GET /v1/status with what the server knows and what every [StatusReporter] adds.
func (s *Server) status() httpx.Handler {
	return func(w http.ResponseWriter, _ *http.Request) error {
		status := v1.Status{
			Version:   s.info.Version,
			Node:      s.info.Node,
			PID:       os.Getpid(),
			Started:   s.started,
			Ready:     s.serving.Load(),
			Endpoints: map[string]int{}, // {} and [] in JSON, also without reports
			Datapath:  v1.Datapath{Programs: []v1.Program{}},
			Resources: []v1.Resource{},
		}
		for _, reporter := range s.parts.Reporters {
			reporter.Report(&status)
		}
		return httpx.JSON(w, http.StatusOK, status)
	}
}
