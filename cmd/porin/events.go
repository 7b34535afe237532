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
		if s.output.value == "json" {
			err = json.NewEncoder(s.out).Encode(event)
		} else {
			_, err = fmt.Fprintln(s.out, eventLine(event))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eventLine has columns of fixed width, as the next line is unknown.
func eventLine(e v1.Event) string {
	parts := []string{fmt.Sprintf("%s  %-5d %-17s", timestamp(e.Time), e.Seq, e.Type)}
	if ep := e.Endpoint; ep != nil {
		parts = append(parts, joinNonEmpty(fmt.Sprint(ep.ID), podName(ep.Pod), shortID(ep.ContainerID)+":"+ep.IfName,
			address(ep.Addresses.IPv4), address(ep.Addresses.IPv6)))
	}
	if len(e.Phases) > 0 { // "add 1.2ms (queue 20µs, ipam 3µs)"
		var total time.Duration
		var phases []string
		for _, p := range e.Phases {
			total += p.Duration
			phases = append(phases, p.Name+" "+shortDuration(p.Duration))
		}
		parts = append(parts, fmt.Sprintf("%s %s (%s)", e.Operation, shortDuration(total), strings.Join(phases, ", ")))
	}
	for _, text := range []string{e.Message, e.Error} {
		if text != "" {
			parts = append(parts, text)
		}
	}
	return printable(strings.TrimSpace(strings.Join(parts, "  ")))
}
