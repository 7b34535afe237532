// Command embed uses two cells of Porin alone: endpoints and their addresses, without a kernel, root or Kubernetes.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"go.uber.org/fx"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
)

func main() {
	addresses, endpoints := ipam.DefaultConfig(), endpointmanager.DefaultConfig()
	addresses.PodCIDRs = []string{"10.244.1.0/24", "fd00:10:244:1::/64"}
	endpoints.StateDir, _ = os.MkdirTemp("", "embed")
	defer os.RemoveAll(endpoints.StateDir)

	var manager endpointmanager.Manager
	app := fx.New(fx.NopLogger, fx.Supply(slog.Default()), fx.Populate(&manager),
		ipam.Module(addresses), endpointmanager.Module(endpoints),
		fx.Provide(func(s *ipam.Step) endpoint.Steps { return endpoint.Steps{s} }),
		fx.Provide(func() allocator.Refiller { return nil })) // the node gets no more addresses
	if err := app.Start(context.Background()); err != nil {
		panic(err)
	}
	defer app.Stop(context.Background())

	endpoint, err := manager.Create(context.Background(), endpoint.Spec{
		Attachment: endpoint.Attachment{ContainerID: "c1", IfName: "eth0"},
	}, nil)
	fmt.Println(endpoint.ID, endpoint.State, endpoint.Addresses.List(), err)
}
