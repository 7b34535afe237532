package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

func nodeList(ctx context.Context, s *session, _ []string) error {
	list, err := s.client.Nodes(ctx)
	if err != nil {
		return err
	}
	return s.print(list, func(w io.Writer) {
		row(w, "NODE", "KEY", "STATE", "ADDRESSES", "BLOCKS", "AGENT SINCE", "AGE")
		for _, n := range list {
			row(w, n.Name, n.Key, nodeState(n), addressesText(n.Addresses), len(n.Blocks), s.lastContact(n), s.age(n.Created))
		}
	})
}

func nodePeers(ctx context.Context, s *session, _ []string) error {
	list, err := s.client.Peers(ctx)
	if err != nil {
		return err
	}
	return s.print(list, func(w io.Writer) {
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
func addressesText(addrs []netip.Addr) string {
	texts := make([]string, len(addrs))
	for i, addr := range addrs {
		texts[i] = addr.String()
	}
	return cmp.Or(strings.Join(texts, " "), "-")
}

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
	_, err := fmt.Fprintf(s.out, "node %s deleted: %s\n", s.nodeText(args[0]), what)
	return err
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
	if err := s.client.ResetNode(ctx, args[0], v1.NodeReset{Key: s.incarnation}); err != nil || s.output.value == "json" {
		return err
	}
	_, err := fmt.Fprintf(s.out, "node %s reset: the agent that has its key goes on\n", s.nodeText(args[0]))
	return err
}

// nodeNames are for completion.
func nodeNames(ctx context.Context, s *session) (all []cobra.Completion) {
	list, _ := s.client.NodeNames(ctx)
	for _, n := range list {
		all = append(all, cobra.CompletionWithDesc(n.Name, n.Key))
	}
	return all
}
