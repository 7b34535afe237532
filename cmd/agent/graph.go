package main

import (
	"fmt"
	"io"
	"log/slog"

	"go.uber.org/fx"
)

// printGraph writes the graph of the modules. No constructor of a cell touches the machine, so it can be drawn
// anywhere.
func printGraph(w io.Writer, cfg Config) error {
	if len(cfg.IPAM.PodCIDRs) == 0 {
		cfg.IPAM.PodCIDRs = []string{"10.244.0.0/24"} // any node's; it is not in the picture
	}
	var graph fx.DotGraph
	app := fx.New(Cells(cfg), fx.Supply(slog.New(slog.DiscardHandler)), quiet, fx.Populate(&graph))
	if err := app.Err(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, string(graph))
	return err
}
