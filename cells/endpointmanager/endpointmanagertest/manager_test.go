package endpointmanagertest_test

import (
	"context"
	"log/slog"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
)

func TestManager(t *testing.T) {
	t.Run("fake", func(t *testing.T) {
		endpointmanagertest.TestManager(t, func(_ *testing.T, steps endpoint.Steps, s endpoint.Subscriber) (endpointmanager.Manager, endpointmanager.Lookup) {
			m := endpointmanagertest.NewManager(steps, s)
			return m, m
		})
	})
	t.Run("real", func(t *testing.T) {
		endpointmanagertest.TestManager(t, func(t *testing.T, steps endpoint.Steps, s endpoint.Subscriber) (endpointmanager.Manager, endpointmanager.Lookup) {
			cfg := endpointmanager.DefaultConfig()
			cfg.StateDir = t.TempDir()
			table := endpointmanager.NewTable()
			service := endpointmanager.New(endpointmanager.Params{
				Config: cfg, Log: slog.New(slog.DiscardHandler), Table: table, Steps: steps, Subscribers: []endpoint.Subscriber{s},
			})
			if err := service.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := service.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			})
			return service, table
		})
	})
}
