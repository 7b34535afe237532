package server

import "go.uber.org/fx"

// Watcher is told when the API begins and ends to serve. Both are called one watcher after the other and must return
// soon: Serving once, when the socket answers; Stopping once, before anything stops, so that a handler that streams
// can end.
type Watcher interface {
	Serving()
	Stopping()
}

// Watch contributes the [Watcher] that newWatcher builds: server.Watch(newWatcher).
func Watch(newWatcher any) fx.Option {
	return fx.Provide(fx.Annotate(newWatcher, fx.As(new(Watcher)), fx.ResultTags(`group:"server.watchers"`)))
}
