package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"porin.dev/porin/cmd/porin/fleet"
)

// clusterMonitor is "porin cluster monitor": the flows of all nodes in one stream, by their time.
func clusterMonitor(ctx context.Context, s *session, _ []string) error {
	options, err := s.flows.client(s.follow)
	if err != nil {
		return err
	}
	if options.Since > 0 {
		return usageOf([]string{clusterGroup, "monitor"}, "--since: want a time, such as 5m: each agent numbers its own flows")
	}
	nodes, err := s.listNodes(ctx)
	if err != nil {
		return err
	}
	var faults faultList
	agents := agentsOf(nodes, &faults)
	failed := func(pod fleet.Pod, err error) { faults.add(pod.Node, "the flows end: "+err.Error()) }
	if s.follow {
		printFaults(s, &faults)
		failed = func(pod fleet.Pod, err error) {
			_, _ = fmt.Fprintf(s.err, "porin: %s: the flows end: %s\n", pod.Node, printableLines(err.Error()))
		}
	} else {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, s.timeout)
		defer cancel()
	}
	err = fleet.Follow(ctx, s.cluster, agents, func(f fleet.NodeFlow) error { return printNodeFlow(s, f) }, failed, monitorArguments(options)...)
	if s.follow && ctx.Err() != nil {
		return nil // interrupted, which is how it ends
	}
	if s.follow && err == nil {
		return errors.New("the flows of all nodes have ended")
	}
	if missing := faults.nodes(); missing > 0 && (err == nil || errors.Is(err, context.DeadlineExceeded)) {
		printFaults(s, &faults)
		return fmt.Errorf("flows of %s are missing", plural(missing, "node"))
	}
	return err
}

// printFaults writes to stderr.
func printFaults(s *session, faults *faultList) {
	for _, f := range faults.grouped() {
		_, _ = fmt.Fprintf(s.err, "porin: %s: %s\n", nodesText(f.Nodes), printableLines(f.Text))
	}
}

func printNodeFlow(s *session, f fleet.NodeFlow) (err error) {
	switch {
	case s.output.value == "json":
		return json.NewEncoder(s.out).Encode(f)
	case f.Lost > 0:
		_, err = fmt.Fprintf(s.err, "porin: %s: %s lost\n", printable(f.Node), plural(f.Lost, "flow"))
	default:
		before := printable(f.Node) + "  "
		if f.Late {
			before += "(late) "
		}
		_, err = fmt.Fprintln(s.out, before+flowLine(s, f.Flow, flowWidth-utf8.RuneCountInString(before)))
	}
	return err
}
