package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// healthCommand is "porin health". A node that is not reached is on stdout, and a failure.
func healthCommand(ctx context.Context, s *session, _ []string) error {
	answer, err := s.client.Health(ctx)
	if err != nil {
		return err
	}
	failing := failingNodes(answer.Nodes)
	shown := answer
	if s.failing {
		shown.Nodes = failing
	}
	if err := s.print(shown, func(w io.Writer) { s.healthTable(w, shown, len(answer.Nodes), failing) }); err != nil {
		return err
	}
	var faults []string
	if answer.Endpoint.Status == v1.HealthFailing {
		faults = append(faults, "the node's own health endpoint fails")
	}
	if len(failing) > 0 {
		faults = append(faults, fmt.Sprintf("%d of %s failing", len(failing), plural(len(answer.Nodes), "other node")))
	}
	if len(faults) > 0 {
		return errors.New(strings.Join(faults, ", and "))
	}
	return nil
}

func failingNodes(nodes []v1.NodeHealth) []v1.NodeHealth {
	failing := []v1.NodeHealth{} // an empty list is [] and not null
	for _, n := range nodes {
		if n.Status == v1.HealthFailing {
			failing = append(failing, n)
		}
	}
	return failing
}

// healthColumns are the columns of the matrix, by the probe.
var healthColumns = [...]struct{ title, target, protocol, family string }{
	{"NODE-ICMP4", "node", "icmp", "ipv4"},
	{"NODE-ICMP6", "node", "icmp", "ipv6"},
	{"ENDPOINT-ICMP4", "endpoint", "icmp", "ipv4"},
	{"ENDPOINT-ICMP6", "endpoint", "icmp", "ipv6"},
	{"ENDPOINT-HTTP4", "endpoint", "http", "ipv4"},
	{"ENDPOINT-HTTP6", "endpoint", "http", "ipv6"},
}

func (s *session) healthTable(w io.Writer, h v1.ClusterHealth, all int, failing []v1.NodeHealth) {
	row(w, "Node:", h.Node)
	row(w, "Health endpoint:", s.endpointHealth(h.Endpoint))
	probed := "each of them every " + plainDuration(h.Interval)
	if all > h.Sample {
		probed = fmt.Sprintf("%d of them at random every %s", h.Sample, plainDuration(h.Interval))
	}
	row(w, "Other nodes:", fmt.Sprintf("%d, %d failing, probed %s", all, len(failing), probed))
	if len(h.Nodes) == 0 {
		return
	}
	_, _ = fmt.Fprintln(w)
	header := []string{s.paint(plain, "NODE"), s.paint(plain, "STATUS"), s.paint(plain, "ANSWERED")}
	for _, c := range healthColumns {
		header = append(header, s.paint(plain, c.title))
	}
	_, _ = fmt.Fprintln(w, strings.Join(append(header, s.paint(plain, "AT FAULT")), "\t"))
	for _, n := range h.Nodes {
		cells := []string{s.paint(plain, n.Name), s.paint(statusColours[n.Status], n.Status), s.paint(plain, s.answered(n))}
		for _, c := range healthColumns {
			cells = append(cells, s.probeCell(n, c.target, c.protocol, c.family))
		}
		var parts []string
		for _, f := range n.Faults {
			parts = append(parts, f.Part)
		}
		_, _ = fmt.Fprintln(w, strings.Join(append(cells, s.paint(plain, strings.Join(parts, ", "))), "\t"))
	}
	if len(failing) > 0 {
		_, _ = fmt.Fprintln(w)
	}
	for _, n := range failing {
		for _, f := range n.Faults {
			_, _ = fmt.Fprintln(w, printable(n.Name+": "+f.Part+": "+f.Detail))
		}
	}
}

func (s *session) endpointHealth(e v1.HealthEndpoint) string {
	text := e.Status
	if e.Status == v1.HealthOff {
		return "off: the agent's --health-endpoint, or addresses of another IPAM plugin"
	}
	for _, addr := range e.Addresses.List() {
		text += ", " + addr.String()
	}
	if e.Checked != nil {
		text += ", checked " + s.age(*e.Checked) + " ago"
	}
	if e.Error != "" {
		text += ": " + e.Error
	}
	return text
}

// answered is the age of the last answer of a node.
func (s *session) answered(n v1.NodeHealth) string {
	var last time.Time
	for _, p := range n.Probes {
		if p.LastSeen != nil && p.LastSeen.After(last) {
			last = *p.LastSeen
		}
	}
	if last.IsZero() {
		return ""
	}
	return s.age(last) + " ago"
}

// probeCell is the latency of an answer, or since when there is none.
func (s *session) probeCell(n v1.NodeHealth, target, protocol, family string) string {
	for _, p := range n.Probes {
		switch {
		case p.Target != target || p.Protocol != protocol || p.Family != family:
		case p.OK:
			return s.paint(green, shortDuration(p.Latency))
		case p.LastSeen != nil:
			return s.paint(red, "FAILS, ok "+s.age(*p.LastSeen)+" ago")
		default:
			return s.paint(red, "FAILS "+strconv.Itoa(p.Failures)+" times")
		}
	}
	return s.paint(plain, "")
}

// colour is the number of a terminal's colour. All have the same length, so that columns stay aligned.
type colour string

const (
	plain  colour = "39"
	green  colour = "32"
	red    colour = "31"
	yellow colour = "33"
)

var statusColours = map[string]colour{v1.HealthOK: green, v1.HealthFailing: red, v1.HealthUnknown: yellow}

// paint is the text of a cell in a colour, where stdout is a terminal.
func (s *session) paint(c colour, text string) string {
	text = printable(text)
	if !s.colours {
		return text
	}
	if c == "" {
		c = plain
	}
	return "\x1b[" + string(c) + "m" + text + "\x1b[39m"
}
