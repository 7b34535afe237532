// Command porin-proxy applies the layer 7 rules of one node, in a process that outlives the agent.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"go.uber.org/fx"

	"porin.dev/porin/cells/proxy/control"
	"porin.dev/porin/internal/cell"
	"porin.dev/porin/internal/procsys"
	"porin.dev/porin/internal/settings"
	"porin.dev/porin/internal/version"
)

const usage = `porin-proxy applies the HTTP and DNS rules of this node's policies, for an agent with --proxy-mode external.

One that starts while another one serves the same socket takes its place: connections wait for neither, and the previous one ends when its
requests have, at the latest after its --drain-timeout.

Usage:
  porin-proxy [flags]     run until SIGTERM, SIGINT, or until another one takes over
  porin-proxy version     print the version

Every flag but --config is also an environment variable (--state-dir is PORIN_STATE_DIR) and a key of the YAML file
that --config names (state-dir).

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "porin-proxy:", err)
		os.Exit(1)
	}
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	cfg := DefaultConfig()
	fs := pflag.NewFlagSet("porin-proxy", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() { fmt.Fprint(stdout, usage, fs.FlagUsages()) }
	file := fs.String("config", "", "YAML `file` of the other flags' names")
	cfg.Flags(fs)
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return fmt.Errorf("%w (see porin-proxy --help)", err)
	}
	switch command := fs.Arg(0); {
	case command == "version" && fs.NArg() == 1:
		_, err := fmt.Fprintln(stdout, version.Of())
		return err
	case command != "":
		return fmt.Errorf("unknown command %q (see porin-proxy --help)", command)
	}
	err := settings.Load(fs, *file, os.LookupEnv)
	if err := errors.Join(err, cfg.Validate()); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return serve(ctx, cfg)
}

// Bounds of all start hooks, and of what stop hooks take besides the requests that are being served.
const (
	startTimeout = 30 * time.Second
	stopTimeout  = 10 * time.Second
)

// serve runs the proxy until ctx ends, another one has taken over, or a cell gives up.
func serve(ctx context.Context, cfg Config) error {
	if err := procsys.MakeWritable(); err != nil {
		return err
	}
	log, err := cfg.Logging.Logger(os.Stderr)
	if err != nil {
		return err
	}
	var server *control.Server
	app := fx.New(Cells(cfg), fx.Supply(log), fx.Populate(&server), cell.Quiet, fx.StartTimeout(startTimeout), fx.StopTimeout(cfg.Control.DrainTimeout+stopTimeout))
	if err := app.Err(); err != nil {
		return err
	}
	log.Info("proxy starts", "version", version.Of(), "pid", os.Getpid())
	err = cell.Run(ctx, app, func(reason error) {
		if !errors.Is(reason, cell.ErrGaveUp) {
			server.Drain()
		}
		log.Info("proxy stops")
	})
	if err != nil || !cfg.StayWhenReplaced {
		return err
	}
	if err := control.WaitUnserved(ctx, cfg.Control.Socket); err != nil || ctx.Err() != nil {
		return err
	}
	return syscall.Exec("/proc/self/exe", os.Args, os.Environ()) // a container that ends would be started again after a pause that grows
}
