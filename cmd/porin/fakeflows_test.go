package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
)

// someFlows are one of each kind.
func someFlows() []v1.Flow {
	pod := func(name, addr string, port uint16) v1.FlowEnd {
		return v1.FlowEnd{Address: netip.MustParseAddr(addr), Port: port, Kind: "pod", Pod: v1.Pod{Namespace: "demo", Name: name}, Labels: map[string]string{"app": name}}
	}
	other := func(kind, addr string, port uint16) v1.FlowEnd {
		return v1.FlowEnd{Address: netip.MustParseAddr(addr), Port: port, Kind: kind}
	}
	client, web := pod("client", "10.1.0.3", 41234), pod("web", "10.1.0.2", 8080)
	rule := func(index int) *v1.PolicyRule {
		return &v1.PolicyRule{Kind: "NetworkPolicy", Namespace: "demo", Policy: "web", Direction: "ingress", Index: index}
	}
	named := other("world", "198.51.100.9", 443)
	named.Names = []string{"www.example.com", "evil\x1b[31m.example.com"}
	anything := &v1.PolicyDecision{Allowed: true, Reason: "no policy selects the pod"}
	byRequests := &v1.PolicyDecision{Allowed: true, Reason: "rule", Rule: rule(1), Layer7: []string{"GET /public"}}
	echo := pod("client", "10.1.0.3", 77)
	flows := []v1.Flow{
		{
			Verdict: v1.FlowAllowed, Protocol: "TCP", From: client, To: web, Service: v1.FlowEnd{Address: netip.MustParseAddr("10.96.0.1"), Port: 80},
			Egress: anything, Ingress: &v1.PolicyDecision{Allowed: true, Reason: "rule", Rule: rule(0)},
		},
		{
			Verdict: v1.FlowDenied, Reason: "policy-ingress", Protocol: "UDP", From: other("world", "fd00::9", 5353), To: web,
			Egress: &v1.PolicyDecision{Allowed: true, Reason: "not a pod"}, Ingress: &v1.PolicyDecision{Reason: "default deny", Rule: rule(-1)},
		},
		{Verdict: v1.FlowDenied, Reason: "policy-egress", Protocol: "TCP", From: client, To: other("host", "192.0.2.1", 22), Reply: true},
		{Lost: 12},
		{Verdict: v1.FlowDropped, Reason: "spoofed-address", Protocol: "TCP", From: pod("client", "198.51.100.7", 1024), To: other("world", "192.0.2.7", 80)},
		{Verdict: v1.FlowAllowed, Protocol: "ICMP", From: echo, To: other("world", "192.0.2.7", 77), Egress: anything, Ingress: anything},
		{Verdict: v1.FlowDropped, Reason: "malformed"},
		{Verdict: v1.FlowAllowed, Protocol: "TCP", From: client, To: named, Egress: anything, Ingress: anything},
		{
			Verdict: v1.FlowDenied, Reason: "no-rule", Protocol: "TCP", From: client, To: web, Egress: anything, Ingress: byRequests,
			HTTP: &v1.HTTPRequest{Method: "GET", Host: "web.demo", Path: "/admin\x1b[31m", Status: 403},
		},
		{
			Verdict: v1.FlowAllowed, Protocol: "UDP", From: client, To: web, Egress: anything, Ingress: byRequests,
			DNS: &v1.DNSQuery{Type: "AAAA", Name: "www.example.com", Code: "NXDOMAIN"},
		},
		{Verdict: v1.FlowDropped, Reason: "client-sent-nothing", Protocol: "TCP", From: client, To: web, HTTP: &v1.HTTPRequest{}},
	}
	for i := range flows {
		flows[i].Seq, flows[i].Time = uint64(i+1), noon
	}
	return flows
}

// flows knows one filter.
func (a *fakeAgent) flows(w http.ResponseWriter, r *http.Request) error {
	if verdict := r.URL.Query().Get("verdict"); verdict == "perhaps" {
		return fault.New(fault.Invalid, fmt.Sprintf("verdict=%q: want allowed, audit, denied, dropped", verdict))
	}
	w.WriteHeader(http.StatusOK)
	for _, flow := range someFlows() {
		if reason := r.URL.Query().Get("reason"); reason == "" || reason == flow.Reason {
			_ = json.NewEncoder(w).Encode(flow)
		}
	}
	return nil
}
