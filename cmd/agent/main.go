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
	"porin.dev/porin/internal/cell"
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
	app := fx.New(Cells(cfg), fx.Supply(log), cell.Quiet, fx.StartTimeout(startTimeout), fx.StopTimeout(stopTimeout))
	if err := app.Err(); err != nil {
		return err
	}
	netnsCookie := slog.Attr{} // which is left out: what needs the cookie reports an error
	if cookie, err := netns.OwnCookie(); err == nil {
		netnsCookie = slog.Uint64("netns", cookie) // the ledger names it, too
	}
	log.Info("agent starts", "version", version.Of(), "pid", os.Getpid(), "node", cfg.NodeName, netnsCookie)
	return cell.Run(ctx, app, func(reason error) { log.Info("agent stops", "reason", reason) })
}

// printGraph writes the graph of the modules. No constructor of a cell touches the machine, so it can be drawn
// anywhere.
func printGraph(w io.Writer, cfg Config) error {
	if len(cfg.IPAM.PodCIDRs) == 0 {
		cfg.IPAM.PodCIDRs = []string{"10.244.0.0/24"} // any node's; it is not in the picture
	}
	var graph fx.DotGraph
	app := fx.New(Cells(cfg), fx.Supply(slog.New(slog.DiscardHandler)), cell.Quiet, fx.Populate(&graph))
	if err := app.Err(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, string(graph))
	return err
}
