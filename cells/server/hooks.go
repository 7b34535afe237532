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

// StatusReporter adds a cell's part to the answer of GET /v1/status. Report is called for each request, concurrently,
// and takes a second at the most.
type StatusReporter interface{ Report(status *v1.Status) }

// Report contributes the [StatusReporter] that newReporter builds: server.Report(newReporter).
func Report(newReporter any) fx.Option {
	return fx.Provide(fx.Annotate(newReporter, fx.As(new(StatusReporter)), fx.ResultTags(`group:"server.reporters"`)))
}

// Watcher is notified when the API begins and ends to serve. Both are called one watcher after the other and must
// return soon: Serving once, when the socket answers; Stopping once, before anything stops, so that a handler that
// streams can end.
type Watcher interface {
	Serving()
	Stopping()
}

// Watch contributes the [Watcher] that newWatcher builds: server.Watch(newWatcher).
func Watch(newWatcher any) fx.Option {
	return fx.Provide(fx.Annotate(newWatcher, fx.As(new(Watcher)), fx.ResultTags(`group:"server.watchers"`)))
}
