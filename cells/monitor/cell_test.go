package monitor_test

import (
	"log/slog"
	"path/filepath"
	"slices"
	"testing"

	"go.uber.org/fx"
	"go.uber.org/fx/fxtest"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/monitor"
	"porin.dev/porin/cells/server"
)

// observers is what the endpointmanager asks for.
type observers struct {
	fx.In

	All []endpoint.Observer `group:"endpoint.observers"`
}

func TestModule(t *testing.T) {
	var (
		publisher monitor.Publisher
		operation endpoint.Observer
		cfg       = server.Config{Socket: filepath.Join(t.TempDir(), "agent.sock")}
	)
	app := fxtest.New(t, fx.NopLogger,
		fx.Supply(slog.New(slog.DiscardHandler)),
		monitor.Module(monitor.DefaultConfig()),
		server.Module(cfg, server.Info{}),
		fx.Invoke(func(o observers) { operation = o.All[0] }),
		fx.Populate(&publisher),
	)
	app.RequireStart()
	defer app.RequireStop()
	operation.Observe(endpoint.Trace{Operation: endpoint.OperationDel})
	publisher.Publish(v1.Event{Type: "proxy-ready"})

	c := client.New(cfg.Socket)
	defer c.Close()
	var got []string
	for event, err := range c.Events(t.Context(), client.EventOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, event.Type)
	}
	if want := []string{"agent-ready", "endpoint-deleted", "proxy-ready"}; !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
}
