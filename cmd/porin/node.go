package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/kubernetes/nodegc"
)

func nodeList(ctx context.Context, s *session, _ []string) error {
	list, err := s.client.Nodes(ctx)
	return s.show(list, err, func(w io.Writer) {
		row(w, "NODE", "KEY", "STATE", "ADDRESSES", "BLOCKS", "AGENT SINCE", "AGE")
		for _, n := range list {
			row(w, n.Name, n.Key, nodeState(n), addressesText(n.Addresses), len(n.Blocks), s.lastContact(n), s.age(n.Created))
		}
	})
}

func nodePeers(ctx context.Context, s *session, _ []string) error {
	list, err := s.client.Peers(ctx)
	return s.show(list, err, func(w io.Writer) {
		row(w, "NODE", "ADDRESSES", "ROUTING", "BLOCK", "REACH")
		for _, p := range list {
			name := p.Name
			if p.Missing {
				name += " (its record is missing)"
			}
			if len(p.Blocks) == 0 {
				row(w, name, addressesText(p.Addresses), p.Routing, "-", "-")
			}
			for _, b := range p.Blocks {
				row(w, name, addressesText(p.Addresses), p.Routing, b.CIDR, cmp.Or(b.Error, b.Reach, "not yet"))
			}
		}
	})
}

// addressesText is "-" when none is known.
func addressesText(addrs []netip.Addr) string { return cmp.Or(joined(addrs), "-") }

func nodeState(n v1.Node) string {
	switch {
	case n.Contested:
		return "contested by a copy"
	case n.State == "":
		return "deleted"
	}
	return n.State
}

func (s *session) lastContact(n v1.Node) string {
	if n.LastContact.IsZero() {
		return "never"
	}
	return s.age(n.LastContact)
}

func nodeDelete(ctx context.Context, s *session, args []string) error {
	if err := s.client.DeleteNode(ctx, args[0], v1.NodeDeletion{Key: s.incarnation, MachineIsOff: s.machineIsOff}); err != nil || s.output.value == "json" {
		return err
	}
	what := "the blocks that it had left can be claimed" + s.whenClaimed(ctx)
	if s.machineIsOff {
		what = "its blocks can be claimed" + s.whenClaimed(ctx) + "; what was reserved on it was on its disk alone, and is lost with it"
	}
	return s.done(nil, "node %s deleted: %s", s.nodeText(args[0]), what)
}

// whenClaimed is "" when blocks can be claimed now, as far as is known.
func (s *session) whenClaimed(ctx context.Context) string {
	if state, err := s.client.Recovery(ctx); err == nil && state.UnderWay {
		return " when the recovery is over (porin ipam recover)"
	}
	return ""
}

// nodeText is NAME/KEY when a key was given.
func (s *session) nodeText(name string) string {
	if s.incarnation == "" {
		return name
	}
	return name + "/" + s.incarnation
}

func nodeReset(ctx context.Context, s *session, args []string) error {
	err := s.client.ResetNode(ctx, args[0], v1.NodeReset{Key: s.incarnation})
	return s.done(err, "node %s reset: the agent that has its key goes on", s.nodeText(args[0]))
}

// nodeNames are for completion.
func nodeNames(ctx context.Context, s *session) (all []cobra.Completion) {
	list, _ := s.client.NodeNames(ctx)
	for _, n := range list {
		all = append(all, cobra.CompletionWithDesc(n.Name, n.Key))
	}
	return all
}

// nodeGC works at the API server. It asks no agent.
func nodeGC(ctx context.Context, s *session, _ []string) error {
	if s.wait < 0 {
		return usageOf([]string{clusterGroup, "node", "gc"}, "--wait: want a time of zero or more, such as 10m")
	}
	server, b, err := dialRecords(s.kubeconfig, s.kubeContext)
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
