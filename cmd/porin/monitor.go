package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strings"
	"unicode/utf8"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/bpf/abi"
)

func monitor(ctx context.Context, s *session, _ []string) error {
	options, err := s.flows.client(s.follow)
	if err != nil {
		return err
	}
	if s.untilEOF {
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer end()
		go func() {
			_, _ = io.Copy(io.Discard, s.in)
			end()
		}()
	}
	for flow, err := range s.client.Flows(ctx, options) {
		if err != nil && s.follow && ctx.Err() != nil {
			return nil // interrupted, which is how it ends
		}
		if err != nil {
			return err
		}
		switch {
		case s.output.value == "json":
			err = json.NewEncoder(s.out).Encode(flow)
		case flow.Lost > 0:
			_, err = fmt.Fprintf(s.err, "porin: %s lost\n", plural(flow.Lost, "flow"))
		default:
			_, err = fmt.Fprintln(s.out, flowLine(s, flow, flowWidth))
		}
		if err != nil {
			return err
		}
	}
	if s.follow && ctx.Err() == nil {
		return fmt.Errorf("read flows: the agent has ended the stream: %w", client.ErrUnreachable)
	}
	return nil
}

// flowWidth is how long the line of a flow may be without -o wide, in letters. minText of them are left beside a long
// name of a node, and minRequest for a request beside a rule.
const (
	flowWidth  = 160
	minText    = 60
	minRequest = 30
)

var verdictColours = map[string]colour{v1.FlowAllowed: green, v1.FlowAudit: yellow, v1.FlowDenied: red, v1.FlowDropped: red}

// flowLine has columns of fixed width where it can, as the next line is unknown.
func flowLine(s *session, f v1.Flow, width int) string {
	from, to := f.From, f.To
	if f.Protocol == "ICMP" || f.Protocol == "ICMPv6" {
		from.Port, to.Port = 0, 0 // an echo's identifier
	}
	protocol, request := requestText(f)
	if request != "" {
		from.Port, request = 0, " "+request
	}
	ends := fmt.Sprintf("%-6s  %s -> %s", protocol, flowEndText(from), flowEndText(to))
	names, line := "", ""
	if len(to.Names) > 0 {
		names = " named " + strings.Join(to.Names, ", ")
	}
	if f.Service.Address.IsValid() {
		names += " by " + addressAndPort(f.Service)
	}
	if f.Reply {
		line += " (reply)"
	}
	if why := flowReason(f); why != "" {
		line += "  " + why
	}
	if s.output.value == "wide" {
		line += flowLabels("from", from) + flowLabels("to", to)
		width = math.MaxInt
	}
	before, verdict := timestamp(f.Time)+"  ", fmt.Sprintf("%-7.7s", printable(f.Verdict))
	room := max(width-len(before)-len(verdict)-2, minText)
	if more := utf8.RuneCountInString(ends+request+names+line) - room; more > 0 {
		request = cut(request, max(utf8.RuneCountInString(request)-more, minRequest))
	}
	policy, _, numbered := strings.Cut(line, " (") // without which of its rules
	if numbered {
		policy += "…"
	}
	if more := utf8.RuneCountInString(ends+request+names+policy) - room; more > 0 {
		names = cut(names, max(utf8.RuneCountInString(names)-more, 1))
	}
	return before + s.paint(verdictColours[f.Verdict], verdict) + "  " + cut(printable(ends+request+names+line), room)
}

// cut shortens the text to a number of letters.
func cut(text string, most int) string {
	if letters := []rune(text); len(letters) > most {
		return string(letters[:most-1]) + "…"
	}
	return text
}

// requestText is "HTTP" and "GET www.example.com/ 200", or "DNS" and "AAAA www.example.com NOERROR"; for a packet, its
// protocol alone.
func requestText(f v1.Flow) (protocol, request string) {
	switch {
	case f.HTTP != nil:
		request = strings.TrimSpace(f.HTTP.Method + " " + f.HTTP.Host + f.HTTP.Path)
		if f.HTTP.Status > 0 {
			request += fmt.Sprintf(" %d", f.HTTP.Status)
		}
		return "HTTP", request
	case f.DNS != nil:
		return "DNS", strings.Join(strings.Fields(f.DNS.Type+" "+f.DNS.Name+" "+f.DNS.Code), " ")
	}
	return f.Protocol, ""
}

// flowLabels is " from{app=web}", or "" without labels.
func flowLabels(name string, e v1.FlowEnd) string {
	if len(e.Labels) == 0 {
		return ""
	}
	return " " + name + "{" + strings.ReplaceAll(labelsText(e.Labels), " ", ",") + "}"
}

// flowEndText is "demo/web:80" for a pod, and the address for others.
func flowEndText(e v1.FlowEnd) string {
	switch name := podName(e.Pod); {
	case name != "" && e.Port != 0:
		return fmt.Sprintf("%s:%d", name, e.Port)
	case name != "":
		return name
	case e.Kind == "host":
		return "host " + addressAndPort(e)
	}
	return addressAndPort(e)
}

func addressAndPort(e v1.FlowEnd) string {
	switch {
	case !e.Address.IsValid():
		return "?"
	case e.Port == 0:
		return e.Address.String()
	}
	return netip.AddrPortFrom(e.Address, e.Port).String()
}

// flowReason is why: the direction that denies, or the rules that allow, or what the datapath says.
func flowReason(f v1.Flow) string {
	if f.Egress == nil || f.Ingress == nil {
		return f.Reason
	}
	if f.HTTP != nil || f.DNS != nil {
		return requestReason(f)
	}
	var parts []string
	for _, d := range []struct {
		name string
		*v1.PolicyDecision
	}{{"egress", f.Egress}, {"ingress", f.Ingress}} {
		if d.Allowed == (f.Verdict == v1.FlowAllowed) && (d.Rule != nil || !d.Allowed) {
			parts = append(parts, d.name+" "+strings.TrimPrefix(decisionText(*d.PolicyDecision), f.Verdict+" "))
		}
	}
	return strings.Join(parts, ", ")
}

// requestReason is why the client has not got the server's answer, and the rules that decide about requests.
func requestReason(f v1.Flow) string {
	var parts []string
	for _, d := range []*v1.PolicyDecision{f.Egress, f.Ingress} {
		if len(d.Layer7) > 0 && d.Rule != nil {
			parts = append(parts, "by "+ruleText(*d.Rule))
		}
	}
	if f.Reason != "" {
		parts = append(parts, f.Reason)
	}
	return strings.Join(parts, ", ")
}

// dropReasons are for completion.
func dropReasons() (names []string) {
	for _, reason := range abi.DropReasons() {
		names = append(names, reason.String())
	}
	return names
}
