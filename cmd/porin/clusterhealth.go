package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/porin/fleet"
)

// clusterHealth is the answer of "porin cluster health".
type clusterHealth struct {
	Agents   int            `json:"agents"` // that were asked
	Answered int            `json:"answered"`
	Failing  []failingPaths `json:"failing"` // ways between nodes
	Faults   []clusterFault `json:"faults"`  // agents without an answer, and health endpoints that their own node does not reach
}

// failingPaths are the ways from one node to others, or from others to one node, that fail for one reason.
type failingPaths struct {
	From   []string `json:"from"`
	To     []string `json:"to"`
	Part   string   `json:"part"`   // as in [v1.HealthFault]
	Detail string   `json:"detail"` // of the first
}

// path is one way that fails.
type path struct{ from, to, part string }

// clusterHealthCommand is "porin cluster health". A way that fails is on stdout, and a failure.
func clusterHealthCommand(ctx context.Context, s *session, _ []string) error {
	nodes, err := s.listNodes(ctx)
	if err != nil {
		return err
	}
	var faults faultList
	agents := agentsOf(nodes, &faults)
	health := clusterHealth{Agents: len(agents)}
	details := map[path]string{}
	for _, a := range fleet.Ask[v1.ClusterHealth](ctx, s.cluster, agents, nil, "health", "--failing") {
		if a.Err != nil {
			faults.add(a.Pod.Node, "agent: "+a.Err.Error())
			continue
		}
		health.Answered++
		if a.Value.Endpoint.Status == v1.HealthFailing {
			faults.add(a.Pod.Node, "its own health endpoint fails: "+a.Value.Endpoint.Error)
		}
		for _, n := range a.Value.Nodes[:min(len(a.Value.Nodes), len(nodes))] { // a hostile agent has more
			for _, f := range n.Faults[:min(len(n.Faults), maxFaults)] {
				details[path{a.Pod.Node, n.Name, f.Part}] = f.Detail
			}
		}
	}
	health.Failing, health.Faults = groupPaths(details), faults.grouped()
	if err := s.print(health, func(w io.Writer) { clusterHealthTable(w, health, len(details)) }); err != nil {
		return err
	}
	if len(details)+len(health.Faults) > 0 {
		return errors.New(strings.Join(slices.DeleteFunc([]string{
			plural(len(details), "failing path"), plural(len(health.Faults), "fault"),
		}, func(text string) bool { return strings.HasPrefix(text, "0 ") }), " and "))
	}
	return nil
}

// groupPaths makes few lines of many paths: first the node from which or to which most paths fail in the same part, and
// so on with the rest.
func groupPaths(details map[path]string) []failingPaths {
	type side struct {
		node, part string
		from       bool
	}
	groups := map[side][]path{}
	for p := range details {
		groups[side{p.from, p.part, true}] = append(groups[side{p.from, p.part, true}], p)
		groups[side{p.to, p.part, false}] = append(groups[side{p.to, p.part, false}], p)
	}
	// Sorted by size once: a group that has lost paths to an earlier one is only a little late.
	order := make([]side, 0, len(groups))
	for s := range groups {
		order = append(order, s)
	}
	slices.SortFunc(order, func(a, b side) int {
		return cmp.Or(cmp.Compare(len(groups[b]), len(groups[a])), strings.Compare(a.node, b.node), strings.Compare(a.part, b.part), compareBool(a.from, b.from))
	})
	list, done := []failingPaths{}, map[path]bool{}
	for _, s := range order {
		paths := slices.DeleteFunc(groups[s], func(p path) bool { return done[p] })
		if len(paths) == 0 {
			continue
		}
		slices.SortFunc(paths, func(a, b path) int { return cmp.Or(strings.Compare(a.from, b.from), strings.Compare(a.to, b.to)) })
		group := failingPaths{Part: s.part, Detail: details[paths[0]]}
		for _, p := range paths {
			done[p] = true
			if s.from {
				group.From, group.To = []string{p.from}, append(group.To, p.to)
			} else {
				group.From, group.To = append(group.From, p.from), []string{p.to}
			}
		}
		list = append(list, group)
	}
	return list
}

// answeredText is "7 have answered", or "5 of 7 have answered".
func answeredText(answered, asked int) string {
	if answered == asked {
		return fmt.Sprintf("%d have answered", asked)
	}
	return fmt.Sprintf("%d of %d have answered", answered, asked)
}

func clusterHealthTable(w io.Writer, h clusterHealth, failing int) {
	row(w, "Agents:", answeredText(h.Answered, h.Agents)+", "+plural(failing, "failing path"))
	faultRows(w, "Fault:", h.Faults)
	if len(h.Failing) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	failingRows(w, h.Failing)
}

func failingRows(w io.Writer, list []failingPaths) {
	row(w, "FROM", "TO", "AT FAULT", "DETAIL")
	for _, f := range list {
		row(w, nodesText(f.From), nodesText(f.To), f.Part, f.Detail)
	}
}
