package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// TestFlowLineKeepsRule: of a long line, the names of the destination are cut rather than the policy.
func TestFlowLineKeepsRule(t *testing.T) {
	f := v1.Flow{
		Time: time.Unix(0, 0), Verdict: v1.FlowDenied, Protocol: "TCP",
		From:    v1.FlowEnd{Pod: v1.Pod{Namespace: "web", Name: "frontend-7f8b9c6d5-trb55"}, Port: 41234},
		To:      v1.FlowEnd{Address: netip.MustParseAddr("198.51.100.9"), Port: 443, Names: []string{strings.Repeat("long.", 20) + "example.com"}},
		Egress:  &v1.PolicyDecision{Rule: &v1.PolicyRule{Kind: "NetworkPolicy", Namespace: "web", Policy: "only-web-ports", Direction: "egress", Index: -1}, Reason: "default deny"},
		Ingress: &v1.PolicyDecision{Allowed: true},
	}
	line := flowLine(&session{options: options{global: newGlobal(func(string) string { return "" })}}, f, flowWidth)
	if !strings.Contains(line, "…  egress by NetworkPolicy web/only-web-ports") || len([]rune(line)) > flowWidth {
		t.Errorf("%d letters: %s", len([]rune(line)), line)
	}
}
