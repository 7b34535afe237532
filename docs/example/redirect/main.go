// Redirect has the proxy serve HTTP that comes by a device to port 80, and forward what its one rule allows. It needs
// nothing else of Porin: no agent, datapath or policies.
//
//	redirect DEVICE BPFROOT
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/redirect"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], func() {}); err != nil {
		slog.Error("redirect", "error", err)
		os.Exit(1)
	}
}

// run redirects until ctx ends. It calls ready when it does.
func run(ctx context.Context, device, bpfRoot string, ready func()) error {
	k := &kernel{device: device}
	way := redirect.New(redirect.Config{BPFRoot: bpfRoot}, k, slog.Default())
	server, err := proxy.NewBuiltIn(k, way, nil, proxy.Config{DrainTimeout: time.Second}, slog.Default())
	if err != nil {
		return err
	}
	p := proxy.New(way, server, slog.Default())
	if err := p.Start(ctx); err != nil {
		return err
	}
	if err := p.Prepare(ctx, map[uint32]model.Layer7{public: {HTTP: []model.HTTPRule{{Method: "GET", Path: "/public/.*"}}}}); err != nil {
		return err
	}
	ready()
	<-ctx.Done()
	return errors.Join(p.Stop(context.Background()), way.Remove())
}
