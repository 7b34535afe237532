// Command porin is the operator's command line of the Porin agent.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"porin.dev/porin/cells/datapath"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], environment{
		out: os.Stdout, err: os.Stderr, terminal: isTerminal(os.Stderr), getenv: os.Getenv, now: time.Now, inspect: datapath.Inspect,
	})
	stop()
	os.Exit(code)
}
