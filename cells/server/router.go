package server

import (
	"net/http"

	"github.com/go-chi/chi/v5"
)

// newRouter puts the middleware, the server's own routes and those of the cells together. The order of the middleware
// is that of the calls: what comes first sees what comes later fail.
func (s *Server) newRouter() chi.Router {
	r := chi.NewRouter()
	r.Use(
		record(s.limits.answer),
		closeDescriptors,
		s.requests.measure,
		logRequests(s.log),
		recoverPanics(s.log),
		refuseStrangers,
		deadlines(s.limits.deadline),
		limitBodies(s.limits.bodyBytes),
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
