package main

import (
	"context"
	"fmt"
	"io"

	v1 "porin.dev/porin/api/v1"
)

func nodeList(ctx context.Context, s *session, _ []string) error {
	list, err := waiting(s, "reading the nodes and blocks of the cluster", func() ([]v1.Node, error) { return s.client.Nodes(ctx) })
	if err != nil {
		return err
	}
	return s.print(list, func(w io.Writer) {
		row(w, "NODE", "KEY", "STATE", "BLOCKS", "AGENT SINCE", "AGE")
		for _, n := range list {
			row(w, n.Name, n.Key, nodeState(n), len(n.Blocks), s.agoOrNever(n), s.age(n.Created))
		}
	})
}

func nodeState(n v1.Node) string {
	switch {
	case n.Contested:
		return "contested by a copy"
	case n.State == "":
		return "deleted"
	case n.ReportedBy != "":
		return "not seen since the store went back"
	}
	return n.State
}

func (s *session) agoOrNever(n v1.Node) string {
	if n.LastContact.IsZero() {
		return "never"
	}
	return s.age(n.LastContact)
}

func nodeDelete(ctx context.Context, s *session, args []string) error {
	if err := s.client.DeleteNode(ctx, args[0], v1.NodeDeletion{Key: s.incarnation, MachineIsOff: s.machineIsOff}); err != nil || s.output.value == "json" {
		return err
	}
	lost := ""
	if s.machineIsOff {
		lost = "; what was reserved on it was on its disk alone, and is lost with it"
	}
	_, err := fmt.Fprintf(s.out, "node %s deleted: its blocks can be claimed%s\n", args[0], lost)
	return err
}

func nodeReset(ctx context.Context, s *session, args []string) error {
	if err := s.client.ResetNode(ctx, args[0], v1.NodeReset{Key: s.incarnation}); err != nil || s.output.value == "json" {
		return err
	}
	_, err := fmt.Fprintf(s.out, "node %s reset: the agent that has its key goes on\n", args[0])
	return err
}

// nodeNames are for completion.
func nodeNames(ctx context.Context, s *session) (all []candidate) {
	list, _ := s.client.NodeNames(ctx)
	for _, n := range list {
		all = append(all, candidate{n.Name, n.Key})
	}
	return all
}

// ipamRecover shows the recovery, after it has begun one or excluded a node from it. The exit code is 0 also while one is under way.
func ipamRecover(ctx context.Context, s *session, _ []string) error {
	var state v1.Recovery
	var err error
	switch {
	case s.begin && s.exclude != "":
		return usageOf([]string{"ipam", "recover"}, "want one of --begin and --exclude")
	case s.begin || s.exclude != "":
		state, err = s.client.ChangeRecovery(ctx, v1.RecoveryRequest{Begin: s.begin, Exclude: s.exclude})
	default:
		state, err = s.client.Recovery(ctx)
	}
	if err != nil {
		return err
	}
	return s.print(state, func(w io.Writer) { recoveryTable(w, state) })
}

func recoveryTable(w io.Writer, state v1.Recovery) {
	if !state.UnderWay {
		_, _ = fmt.Fprintf(w, "No recovery is under way. Recoveries so far: %d.\n", state.Epoch)
		return
	}
	row(w, "Recovery:", fmt.Sprintf("%d, since %s", state.Epoch, state.Began.Format("2006-01-02 15:04:05 MST")))
	row(w, "Reason:", state.Reason)
	for _, n := range state.Waiting {
		row(w, "Waiting for:", n)
	}
	for _, n := range state.Excluded {
		row(w, "Excluded:", n)
	}
}
