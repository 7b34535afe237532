// Command porin-agent is the agent of one node.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/spf13/pflag"
	"go.uber.org/fx"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/procsys"
	"porin.dev/porin/internal/settings"
	"porin.dev/porin/internal/version"
)

const usage = `porin-agent gives the containers of this node their network.

Usage:
  porin-agent [flags]          run until SIGTERM or SIGINT
  porin-agent cleanup [flags]  remove from this node all that Porin has made, and list what is left; see below
  porin-agent graph [flags]    print the graph of the agent's modules in the DOT language
  porin-agent version          print the version

Every flag but --config is also an environment variable (--state-dir is PORIN_STATE_DIR) and a key of the YAML file
that --config names (state-dir). The command line wins over the environment, the environment over the file; a list is
taken from one of them as a whole.

cleanup takes the agent's flags and file, to find what the agent has made. It refuses while an agent, porin-proxy or pods
use it, and has two flags more: --force ignores pods, and cuts them off; --wait tries again every 10 s, and stays after its
success until SIGTERM: then /livez and /readyz of --health-address answer.

Flags:
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "porin-agent:", err)
		os.Exit(1)
	}
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout io.Writer) error {
	cfg := DefaultConfig()
	fs := pflag.NewFlagSet("porin-agent", pflag.ContinueOnError)
	fs.SortFlags = false
	fs.Usage = func() { fmt.Fprint(stdout, usage, fs.FlagUsages()) }
	file := fs.String("config", "", "YAML `file` of the other flags' names")
	cfg.Flags(fs)
	var options cleanupOptions
	if slices.Contains(args, "cleanup") {
		options.flags(fs)
	}
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil
		}
		return fmt.Errorf("%w (see porin-agent --help)", err)
	}
	command := fs.Arg(0)
	if command == "version" {
		_, err := fmt.Fprintln(stdout, version.Of())
		return err
	}
	if fs.NArg() > 1 || !slices.Contains([]string{"", "graph", "cleanup"}, command) {
		return fmt.Errorf("unknown command %q (see porin-agent --help)", command)
	}
	if command == "graph" {
		return printGraph(stdout, cfg)
	}
	err := settings.Load(fs, *file, os.LookupEnv)
	if command == "cleanup" {
		if err := errors.Join(err, cfg.validateCleanup()); err != nil {
			return fmt.Errorf("configuration: %w", err)
		}
		return runCleanup(ctx, cfg, options, stdout)
	}
	if err := errors.Join(err, cfg.Validate()); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return serve(ctx, cfg)
}

// serve runs the agent until ctx ends or a cell gives up.
func serve(ctx context.Context, cfg Config) error {
	if err := endpointmanager.CheckOrigin(cfg.EndpointManager); err != nil { // before any cell changes the node
		return err
	}
	if err := procsys.MakeWritable(); err != nil {
		return err
	}
	log, err := cfg.Logging.Logger(os.Stderr)
	if err != nil {
		return err
	}
	app := fx.New(Cells(cfg), fx.Supply(log), quiet, fx.StartTimeout(startTimeout), fx.StopTimeout(stopTimeout))
	if err := app.Err(); err != nil {
		return err
	}
	log.Info("agent starts", "version", version.Of(), "pid", os.Getpid(), "node", cfg.NodeName, networkNamespace())
	return live(ctx, app, log)
}

// networkNamespace is the log attribute of the agent's own: its cookie, which the ledger names, too.
func networkNamespace() slog.Attr {
	cookie, err := netns.OwnCookie()
	if err != nil {
		return slog.Attr{} // which is left out: what needs the cookie reports that
	}
	return slog.Uint64("netns", cookie)
}

// remedy is what to do on the node about the error, or "".
func remedy(err error) string {
	switch {
	case errors.Is(err, syscall.EROFS):
		return ": mount the file system writable, on the node and in the agent's container"
	case errors.Is(err, syscall.ENOSPC):
		return ": free space on the node's file system"
	}
	return ""
}

var errGaveUp = errors.New("a cell gave up; the log says which and why")

// live starts the cells and stops them when ctx ends or one of them gives up. A start is not interrupted: a half
// start could not be stopped in order.
func live(ctx context.Context, app *fx.App, log *slog.Logger) error {
	starting, cancel := context.WithTimeout(context.WithoutCancel(ctx), app.StartTimeout())
	defer cancel()
	if err := app.Start(starting); err != nil {
		return fmt.Errorf("start: %w%s", err, remedy(err))
	}
	code := 0
	var reason error
	select {
	case <-ctx.Done():
		reason = context.Cause(ctx)
	case stop := <-app.Wait(): // fx listens for signals, too
		if code = stop.ExitCode; code == 0 {
			reason = fmt.Errorf("%s signal received", stop.Signal)
		} else {
			reason = errGaveUp
		}
	}
	log.Info("agent stops", "reason", reason)
	stopping, cancel := context.WithTimeout(context.Background(), app.StopTimeout())
	defer cancel()
	if err := app.Stop(stopping); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	if code != 0 {
		return errGaveUp
	}
	return nil
}
