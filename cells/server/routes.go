package server

import (
	"github.com/go-chi/chi/v5"
	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
)

// Routes is a cell's part of the HTTP API. Mount is called once, before the socket is opened, with the root router:
// patterns are whole paths ("/v1/ipam").
type Routes interface{ Mount(r chi.Router) }

// Provide contributes the [Routes] that newRoutes builds: server.Provide(newRoutes).
func Provide(newRoutes any) fx.Option {
	return fx.Provide(fx.Annotate(newRoutes, fx.As(new(Routes)), fx.ResultTags(`group:"server.routes"`)))
}

// Reporter adds a cell's part to the answer of GET /v1/status. Report is called for each request, concurrently, and
// must not block.
type Reporter interface{ Report(status *v1.Status) }

// Report contributes the [Reporter] that newReporter builds: server.Report(newReporter).
func Report(newReporter any) fx.Option {
	return fx.Provide(fx.Annotate(newReporter, fx.As(new(Reporter)), fx.ResultTags(`group:"server.reporters"`)))
}
