package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"go.uber.org/fx"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
)

// printer is an endpoint.Subscriber.
type printer struct{}

func (printer) EndpointCreated(ep endpoint.Endpoint) { fmt.Println("created", ep.Spec.Attachment) }
func (printer) EndpointDeleted(ep endpoint.Endpoint, _ endpoint.DeleteConfig) {
	fmt.Println("deleted", ep.Spec.Attachment)
}
func (printer) EndpointRestored(endpoint.Endpoint) {}
func (printer) EndpointUpdated(endpoint.Endpoint)  {}

func Example_endpointmanager() {
	cfg := endpointmanager.DefaultConfig()
	cfg.StateDir, _ = os.MkdirTemp("", "embed")
	defer os.RemoveAll(cfg.StateDir)

	var manager endpointmanager.Manager
	var lookup endpointmanager.Lookup
	app := fx.New(fx.NopLogger, fx.Supply(slog.New(slog.DiscardHandler)), fx.Populate(&manager, &lookup),
		endpointmanager.Module(cfg),
		endpointmanager.Subscribe(func() printer { return printer{} }),
		fx.Provide(func() endpoint.Steps { return nil })) // the program's own steps
	ctx := context.Background()
	if err := app.Start(ctx); err != nil {
		panic(err)
	}
	defer app.Stop(ctx)

	attachment := endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}
	if _, err := manager.Create(ctx, endpoint.Spec{Attachment: attachment}, nil); err != nil {
		panic(err)
	}
	fmt.Println("endpoints:", len(lookup.List()))
	manager.Delete(ctx, attachment, endpoint.DeleteConfig{})
	// Output:
	// created c1:eth0
	// endpoints: 1
	// deleted c1:eth0
}
