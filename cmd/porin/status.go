package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

var errNotReady = errors.New("the agent is not ready")

func status(ctx context.Context, s *session, _ []string) error {
	answer, err := s.client.Status(ctx)
	if err != nil {
		return err
	}
	if err := s.print(answer, func(w io.Writer) { s.statusTable(w, answer) }); err != nil {
		return err
	}
	if !answer.Ready {
		return errNotReady
	}
	return nil
}

func (s *session) statusTable(w io.Writer, answer v1.Status) {
	row(w, "Agent:", fmt.Sprintf("%s on %s, pid %d, up %s", answer.Version, answer.Node, answer.PID, s.age(answer.Started)))
	row(w, "Ready:", yesNo(answer.Ready))
	row(w, "Endpoints:", endpointCounts(answer.Endpoints))
	row(w, "Restored:", fmt.Sprintf("%d taken over, %d undone, in %s", answer.Restored.Adopted, answer.Restored.Undone, short(answer.Restored.Duration)))
	row(w, "Datapath:", datapathLine(answer.Datapath))
	for _, missing := range answer.Datapath.Missing {
		row(w, "Missing:", missing)
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func endpointCounts(byState map[string]int) string {
	total, parts := 0, []string{}
	for _, state := range slices.Sorted(maps.Keys(byState)) {
		total += byState[state]
		parts = append(parts, fmt.Sprintf("%d %s", byState[state], state))
	}
	if total == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func datapathLine(d v1.Datapath) string {
	if len(d.Programs) == 0 {
		return "none"
	}
	var programs []string
	for _, p := range d.Programs {
		programs = append(programs, fmt.Sprintf("%s (id %d)", p.Name, p.ID))
	}
	how := "loaded by this agent"
	if d.Adopted {
		how = "taken over"
	}
	return strings.Join(programs, ", ") + ", " + how
}
