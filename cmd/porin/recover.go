package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// ipamRecover shows the recovery, after it has begun one or excluded a node from it. The exit code is 0 also while one
// is under way.
func ipamRecover(ctx context.Context, s *session, _ []string) error {
	var state v1.Recovery
	var err error
	switch {
	case s.begin && s.exclude != "":
		return usageOf([]string{"ipam", "recover"}, "want one of --begin and --exclude")
	case s.incarnation != "" && s.exclude == "":
		return usageOf([]string{"ipam", "recover"}, "--incarnation: want --exclude, too")
	case s.begin:
		state, err = s.client.ChangeRecovery(ctx, v1.RecoveryRequest{Begin: true})
	case s.exclude != "":
		state, err = s.excludeNode(ctx)
	default:
		state, err = s.client.Recovery(ctx)
	}
	if err != nil {
		return err
	}
	return s.print(state, func(w io.Writer) { recoveryTable(w, state) })
}

// excludeNode finds the key of the node among those that the recovery waits for. NAME/KEY, as the table has it, names one, too.
func (s *session) excludeNode(ctx context.Context) (state v1.Recovery, err error) {
	node := s.exclude
	if s.incarnation != "" {
		node += "/" + s.incarnation
	}
	if !strings.Contains(node, "/") {
		if state, err = s.client.Recovery(ctx); err != nil {
			return state, err
		}
		if node, err = waitingIncarnation(state, node); err != nil {
			return state, err
		}
	}
	return s.client.ChangeRecovery(ctx, v1.RecoveryRequest{Exclude: node})
}

// waitingIncarnation is the one incarnation of the name that the recovery waits for.
func waitingIncarnation(state v1.Recovery, name string) (string, error) {
	if !state.UnderWay {
		return "", errors.New("no recovery is under way")
	}
	var found, keys []string
	for _, n := range state.Waiting {
		if of, key, _ := strings.Cut(n.Node, "/"); of == name {
			found, keys = append(found, n.Node), append(keys, key)
		}
	}
	switch len(found) {
	case 0:
		return "", absentError{fmt.Sprintf("the recovery does not wait for node %q", name)}
	case 1:
		return found[0], nil
	}
	return "", usageOf([]string{"ipam", "recover"}, fmt.Sprintf("it waits for %d incarnations of node %s: say with --incarnation which: %s", len(keys), name, strings.Join(keys, ", ")))
}

func recoveryTable(w io.Writer, state v1.Recovery) {
	defer lostPoolRows(w, state.LostPools)
	if state.Requested {
		_, _ = fmt.Fprintln(w, "Noted: the store does not answer. This agent begins the recovery when it reaches it, before it claims anything.\n"+
			"Run this on every other node, too, or let none of them reach the store before a recovery is under way.")
		return
	}
	if !state.UnderWay {
		_, _ = fmt.Fprintf(w, "No recovery is under way. Recoveries so far: %d.\n", state.Epoch)
		return
	}
	row(w, "Recovery:", sinceText(state.Epoch, state.Began))
	row(w, "Reason:", state.Reason)
	for _, n := range state.Waiting {
		var why []any
		if len(n.Conflicts) > 0 {
			why = append(why, "uses addresses of blocks of "+strings.Join(n.Conflicts, ", ")+": delete that node if its machine is gone, else the pods on one of the two")
		}
		row(w, append([]any{"Waiting for:", n.Node}, why...)...)
	}
	for _, n := range state.Excluded {
		row(w, "Excluded:", n)
	}
}

// sinceText is "13, since 2026-11-20 11:00:00 UTC".
func sinceText(epoch uint64, began time.Time) string {
	return fmt.Sprintf("%d, since %s", epoch, began.Format("2006-01-02 15:04:05 MST"))
}

// lostPoolRows are none when the store has lost none, as far as the asked agent knows.
func lostPoolRows(w io.Writer, pools []v1.LostPool) {
	for _, p := range pools {
		what := "a change of it is gone"
		if p.Gone {
			what = "it is gone"
		}
		row(w, "Lost pool:", fmt.Sprintf("%s, %s; as it was: %s", p.Name, what, p.Command))
	}
}
