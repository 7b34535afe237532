// Command fill writes a ledger of attachments that have no links, as a node has it whose containers all went while no
// agent ran. The bench starts an agent on it.
//
//	fill STATE-DIR COUNT
//
// Their container IDs are c1, c2, and so on, their interfaces eth0, and their addresses count up from 10.200.0.1.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: fill STATE-DIR COUNT")
		os.Exit(2)
	}
	count, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = fill(context.Background(), os.Args[1], count)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "fill:", err)
		os.Exit(1)
	}
}

// atOnce is how many are made side by side: their writes go together.
const atOnce = 64

func fill(ctx context.Context, stateDir string, count int) error {
	cfg := endpointmanager.DefaultConfig()
	cfg.StateDir, cfg.Parallel, cfg.MaxEndpoints = stateDir, atOnce, math.MaxUint16
	manager := endpointmanager.New(endpointmanager.Params{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Table: endpointmanager.NewTable(), Steps: endpoint.Steps{numbered{}},
	})
	if err := manager.Start(ctx); err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(atOnce)
	for i := 1; i <= count; i++ {
		group.Go(func() error {
			_, err := manager.Create(ctx, specOf(i), nil)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return manager.Stop(ctx)
}

const ifname = "eth0"

func specOf(i int) endpoint.Spec {
	return endpoint.Spec{
		Attachment: endpoint.Attachment{ContainerID: "c" + strconv.Itoa(i), IfName: ifname}, Network: "porin",
	}
}

// firstIndex is of links that no node has.
const firstIndex = 1 << 20

// numbered is a step that gives an endpoint a link that no node has and the address of its number, and touches nothing.
type numbered struct{}

func (numbered) Name() string { return "numbered" }

func (numbered) Attach(_ context.Context, ep endpoint.Endpoint, _ *endpoint.Namespace) (endpoint.Endpoint, error) {
	a := ep.Spec.Attachment
	i, err := strconv.Atoi(strings.TrimPrefix(a.ContainerID, "c"))
	if err != nil {
		return ep, err
	}
	ep.Host = endpoint.Interface{Name: v1.HostInterfaceName(a.ContainerID, a.IfName), Index: firstIndex + i}
	ep.Container = endpoint.Interface{Name: a.IfName}
	ep.Addresses.IPv4 = netip.AddrFrom4([4]byte{10, 200, byte(i >> 8), byte(i)})
	return ep, nil
}

func (numbered) Detach(context.Context, endpoint.Endpoint, endpoint.DeleteConfig) error {
	return nil
}

func (numbered) Restore(context.Context, endpoint.Endpoint) ([]string, error) { return nil, nil }
