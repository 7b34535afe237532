package embedded

import (
	"log/slog"

	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/cell"
)

// Module is the cell of the store in a folder. It provides the [cluster.Backend].
func Module(dir string) fx.Option {
	return cell.Module("store",
		fx.Provide(func(lc fx.Lifecycle, log *slog.Logger) *Store {
			s := New(dir, log)
			lc.Append(fx.Hook{OnStart: s.Start, OnStop: s.Stop})
			return s
		}, fx.Private),
		fx.Provide((*Store).Backend),
		server.Report(func(s *Store) *Store { return s }),
		supervisor.Health(func(s *Store) *Store { return s }),
	)
}

// Report implements server.StatusReporter.
func (s *Store) Report(status *v1.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.status
	status.Store = &now
}

// Condition implements supervisor.HealthReporter.
func (s *Store) Condition() supervisor.Condition {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.status; !now.Reachable && !now.Since.IsZero() {
		reason := now.Location + " is unreachable: " + now.LastError
		return supervisor.Condition{Cell: "store", State: supervisor.Degraded, Reason: reason}
	}
	return supervisor.Condition{Cell: "store", State: supervisor.OK}
}
