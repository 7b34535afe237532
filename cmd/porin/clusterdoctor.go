package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/porin/fleet"
)

// nodeDoctor is what the doctor of one node has found.
type nodeDoctor struct {
	Node   string     `json:"node"`
	Answer *v1.Doctor `json:"answer,omitempty"`
	Error  string     `json:"error,omitempty"` // why there is no answer
}

// clusterDoctorCommand is "porin cluster doctor". Findings are on stdout, and a failure.
func clusterDoctorCommand(ctx context.Context, s *session, _ []string) error {
	nodes, err := s.listNodes(ctx)
	if err != nil {
		return err
	}
	var faults, found, notes faultList
	answered := 0
	agents := agentsOf(nodes, &faults)
	examined := []nodeDoctor{}
	for _, a := range fleet.Ask[v1.Doctor](ctx, s.cluster, agents, nil, "doctor") {
		if a.Err != nil {
			faults.add(a.Pod.Node, "agent: "+a.Err.Error())
			examined = append(examined, nodeDoctor{Node: a.Pod.Node, Error: a.Err.Error()})
			continue
		}
		answered++
		examined = append(examined, nodeDoctor{Node: a.Pod.Node, Answer: &a.Value})
		for _, f := range a.Value.Findings {
			by := map[bool]string{true: "repair by you: ", false: "repair by the agent: "}[f.Manual]
			found.add(a.Pod.Node, fmt.Sprintf("%s of %s, %s: %s; %s", f.Kind, f.Owner, f.Subject, f.Detail, by+f.Repair))
		}
		for _, fault := range a.Value.Errors {
			faults.add(a.Pod.Node, "not examined: "+fault)
		}
		for _, f := range a.Value.Notes {
			notes.add(a.Pod.Node, fmt.Sprintf("%s of %s, %s: %s", f.Kind, f.Owner, f.Subject, f.Detail))
		}
	}
	failed, findings := faults.grouped(), found.grouped()
	err = s.print(examined, func(w io.Writer) {
		row(w, "Agents:", answeredText(answered, len(agents))+", "+plural(len(findings), "finding"))
		faultRows(w, "Fault:", failed)
		faultRows(w, "Found:", findings)
		faultRows(w, "Note:", notes.grouped())
	})
	if err != nil {
		return err
	}
	var counts []string
	if n := len(findings); n > 0 {
		counts = append(counts, plural(n, "finding"))
	}
	if n := len(failed); n > 0 {
		counts = append(counts, plural(n, "fault"))
	}
	if len(counts) > 0 {
		return errors.New(strings.Join(counts, ", "))
	}
	return nil
}
