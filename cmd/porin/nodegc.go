package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/kubernetes/nodegc"
)

// nodeGC works at the API server. It asks no agent.
func nodeGC(ctx context.Context, s *session, _ []string) error {
	if s.wait < 0 {
		return usageOf([]string{"node", "gc"}, "--wait: want a time of zero or more, such as 10m")
	}
	server, b, err := s.apiServer()
	if err != nil {
		return err
	}
	defer server.Close()
	core, err := server.Core()
	if err != nil {
		return err
	}
	collector := nodegc.Collector{Core: core, Backend: b, Nodes: admin.NewNodes(b), Wait: s.wait, DryRun: s.dryRun}
	results, err := collector.Run(ctx)
	if err != nil && len(results) == 0 {
		return err
	}
	printing := s.print(append([]nodegc.Result{}, results...), func(w io.Writer) {
		row(w, "NODE", "KEY", "OUTCOME", "REASON")
		for _, r := range results {
			row(w, r.Name, r.Key, r.Outcome, r.Reason)
		}
	})
	failed := 0
	for _, r := range results {
		if r.Outcome == nodegc.Failed {
			failed++
		}
	}
	if err == nil && failed > 0 {
		err = fmt.Errorf("%s could not be deleted", plural(failed, "node"))
	}
	return errors.Join(err, printing)
}
