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
	restoredRows(w, answer.Restored)
	heldRows(w, answer.Held)
	row(w, "Datapath:", datapathLine(answer.Datapath))
	for _, missing := range answer.Datapath.Missing {
		row(w, "Missing:", missing)
	}
	for _, r := range answer.Resources {
		row(w, resourceLabel(r), resourceLine(r))
	}
}

func restoredRows(w io.Writer, r v1.Restored) {
	row(w, "Restored:", fmt.Sprintf("%d taken over, %d replaced, %d undone, in %s", r.Adopted, r.Replaced, r.Undone, short(r.Duration)))
	for _, e := range r.Reasons {
		row(w, capital(e.Outcome+":"), shortAttachment(e.Endpoint)+", "+strings.Join(e.Reasons, "; "))
	}
	for _, removed := range r.Removed {
		row(w, "Removed:", removed)
	}
}

// heldRows are none when nothing is held.
func heldRows(w io.Writer, held v1.Held) {
	for _, e := range held.Endpoints {
		parts := []string{shortAttachment(e.Endpoint), addressText(e.Addresses), e.Detail}
		row(w, "Held:", strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), ", "))
	}
	if more := held.Count - len(held.Endpoints); more > 0 {
		row(w, "Held:", fmt.Sprintf("%d more", more))
	}
	switch {
	case held.Count == 0:
	case held.Endpoints[0].Reason == v1.HeldOtherNamespace: // and so have all
		row(w, "", "They are kept as they are until the container runtime calls from the agent's network namespace.")
	default:
		row(w, "", "They are kept as they are. Find out why; when they are gone: porin restore accept")
	}
}

func resourceLabel(r v1.Resource) string {
	if r.Available {
		return "Resource:"
	}
	return "Lacking:"
}

// resourceLine is "addresses/default/10.1.0.0/24, 1 of 253 in use, used up in about 2m".
func resourceLine(r v1.Resource) string {
	parts := []string{r.Name}
	switch {
	case r.Capacity > 0:
		parts = append(parts, fmt.Sprintf("%d of %d in use", r.Used, r.Capacity))
	case r.Available:
		parts = append(parts, "available")
	}
	if r.Reason != "" {
		parts = append(parts, r.Reason)
	}
	if r.ExhaustedIn > 0 {
		parts = append(parts, "used up in about "+plain(r.ExhaustedIn))
	}
	return strings.Join(parts, ", ")
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
