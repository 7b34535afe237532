package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
)

func events(ctx context.Context, s *session, _ []string) error {
	last := s.since
	for event, err := range s.client.Events(ctx, client.EventOptions{Since: s.since, Follow: s.follow}) {
		if err != nil && s.follow && ctx.Err() != nil {
			return nil // interrupted, which is how it ends
		}
		if err != nil {
			return err
		}
		if last > 0 && event.Seq > last+1 {
			_, _ = fmt.Fprintf(s.err, "porin: %s lost\n", plural(event.Seq-last-1, "event"))
		}
		last = event.Seq
		if err := s.printEvent(event); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) printEvent(event v1.Event) error {
	if s.output.value == "json" {
		return json.NewEncoder(s.out).Encode(event)
	}
	_, err := fmt.Fprintln(s.out, eventLine(event))
	return err
}

// eventLine has columns of fixed width, as the next line is unknown.
func eventLine(e v1.Event) string {
	parts := []string{fmt.Sprintf("%s  %-5d %-17s", timestamp(e.Time), e.Seq, e.Type)}
	if e.Endpoint != nil {
		parts = append(parts, endpointWords(*e.Endpoint))
	}
	if len(e.Phases) > 0 {
		parts = append(parts, phaseWords(e.Operation, e.Phases))
	}
	for _, text := range []string{e.Message, e.Error} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return printable(strings.TrimSpace(strings.Join(parts, "  ")))
}

func endpointWords(ep v1.Endpoint) string {
	return joinNonEmpty(fmt.Sprint(ep.ID), podName(ep.Pod), shortID(ep.ContainerID)+":"+ep.IfName,
		address(ep.Addresses.IPv4), address(ep.Addresses.IPv6))
}

// phaseWords is "add 1.2ms (queue 20µs, ipam 3µs)".
func phaseWords(operation string, phases []v1.Phase) string {
	var total time.Duration
	var parts []string
	for _, p := range phases {
		total += p.Duration
		parts = append(parts, p.Name+" "+shortDuration(p.Duration))
	}
	return fmt.Sprintf("%s %s (%s)", operation, shortDuration(total), strings.Join(parts, ", "))
}
