package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

// trace is a table of the latest operations, or all that is known of those on one endpoint.
func trace(ctx context.Context, s *session, args []string) error {
	ref := strings.Join(args, "")
	list, err := s.client.Traces(ctx, ref)
	if err != nil {
		return err
	}
	if len(list) == 0 && ref != "" {
		return absentError{fmt.Sprintf("the agent keeps no operation on %s", printable(ref))}
	}
	return s.print(list, func(w io.Writer) {
		if ref == "" {
			traceTable(w, list)
			return
		}
		for _, t := range list {
			traceRows(w, t)
		}
	})
}

func traceTable(w io.Writer, list []v1.Trace) {
	row(w, "BEGAN", "OPERATION", "ENDPOINT", "POD", "TOTAL", "SLOWEST", "TOOK", "ERROR")
	for _, t := range list {
		var slowest v1.Phase
		for _, p := range t.Phases {
			if slowest.Name == "" || p.Duration > slowest.Duration {
				slowest = p
			}
		}
		row(w, timestamp(t.Began), t.Operation, shortAttachment(t.Endpoint), t.Pod, shortDuration(t.Duration), slowest.Name,
			shortDuration(slowest.Duration), t.Error)
	}
}

func traceRows(w io.Writer, t v1.Trace) {
	row(w, capital(t.Operation+":"), t.Endpoint)
	if t.Pod != "" {
		row(w, "  Pod:", t.Pod)
	}
	row(w, "  Began:", timestamp(t.Began))
	row(w, "  Total:", shortDuration(t.Duration))
	for _, p := range t.Phases {
		row(w, "    "+p.Name, strings.TrimSuffix(shortDuration(p.Duration)+", "+p.Error, ", "))
	}
	if t.Error != "" {
		row(w, "  Error:", t.Error)
	}
}

// traceRefs are pods, and the containers that belong to none.
func traceRefs(ctx context.Context, s *session) (all []cobra.Completion) {
	list, _ := s.client.Traces(ctx, "")
	for _, t := range list {
		containerID, _, _ := strings.Cut(t.Endpoint, ":")
		c := cobra.CompletionWithDesc(containerID, printable(t.Operation))
		if t.Pod != "" {
			c = cobra.CompletionWithDesc(t.Pod, printable(t.Operation+" "+shortAttachment(t.Endpoint)))
		}
		if word, _, _ := strings.Cut(c, "\t"); !slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(other, word+"\t") }) {
			all = append(all, c)
		}
	}
	return all
}
