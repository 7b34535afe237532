package main

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/proxy"
	"porin.dev/porin/cells/proxy/redirect"
)

func Example_proxy() {
	var kernel proxy.Kernel // of the program: docs/example/redirect has one
	log := slog.New(slog.DiscardHandler)
	way := redirect.New(redirect.Config{BPFRoot: "/sys/fs/bpf/embed"}, kernel, log)
	listener, err := proxy.NewBuiltIn(kernel, way, nil, proxy.Config{DrainTimeout: time.Second}, log)
	if err != nil {
		panic(err)
	}
	p := proxy.New(way, listener, log)
	p.OnListeners(func(l *redirect.Listeners) { fmt.Println("the way into the proxy is open:", l != nil) })
	ctx := context.Background()
	if err := p.Start(ctx); err != nil {
		panic(err)
	}
	fmt.Println(p.Supports(model.Layer7{HTTP: []model.HTTPRule{{Method: "GET", Path: "/public/.*"}}}))
	fmt.Println(p.Prepare(ctx, nil)) // the first rules open the way, which needs root
	fmt.Println(p.Stop(ctx))
	// Output:
	// <nil>
	// <nil>
	// <nil>
}
