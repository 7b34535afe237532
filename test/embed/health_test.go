package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/health/probe"
)

// peers is a probe.Peers whose nodes stay the same.
type peers []cluster.NodeNetwork

func (p peers) Peers() []cluster.NodeNetwork { return p }
func (p peers) Changed() <-chan struct{}     { return nil }

// transport is a probe.Transport of a network that answers. The one with sockets is probe/network.New.
type transport struct{}

func (transport) Ping(context.Context, netip.Addr) (time.Duration, error) {
	return time.Millisecond, nil
}

func (transport) Hello(context.Context, netip.Addr) (node string, latency time.Duration, err error) {
	return "node2", time.Millisecond, nil
}

func Example_health() {
	others := peers{{Node: cluster.NodeID{Name: "node2"}, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}}}
	ctx, cancel := context.WithCancel(context.Background())
	observe := func(path probe.Path, latency time.Duration, err error) {
		fmt.Println(path.Target, path.Protocol, latency, err)
		cancel()
	}
	cfg := probe.DefaultConfig()
	cfg.Interval, cfg.Parallel = time.Second, 1
	prober := probe.New(cfg, others, transport{}, observe)
	fmt.Println(prober.Run(ctx))
	fmt.Println(prober.Nodes()[0].Node.Name, prober.Nodes()[0].Status)
	// Output:
	// node icmp 1ms <nil>
	// context canceled
	// node2 ok
}
