package main

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "porin.dev/porin/api/v1"
)

var elsewhere = v1.PolicyDecision{Allowed: true, Reason: v1.ReasonOtherNode}

// TestBothEnds takes egress from the first node and ingress from the second.
func TestBothEnds(t *testing.T) {
	allowed, denied := v1.PolicyDecision{Allowed: true, Reason: "rule"}, v1.PolicyDecision{Reason: "default deny"}
	egress := v1.PolicyExplanation{Allowed: true, Egress: allowed, Ingress: elsewhere, Datapath: v1.PolicyDatapath{Egress: new(true)}}
	ingress := v1.PolicyExplanation{Egress: elsewhere, Ingress: denied, Datapath: v1.PolicyDatapath{Ingress: new(false)}, Error: "no space"}
	want := v1.PolicyExplanation{Egress: allowed, Ingress: denied, Datapath: v1.PolicyDatapath{Egress: new(true), Ingress: new(false)}, Error: "no space"}
	if diff := cmp.Diff(want, bothEnds(&egress, &ingress), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}

// TestJoinDiffs has a connection that both nodes have seen, and one of one node alone.
func TestJoinDiffs(t *testing.T) {
	end := func(addr string) v1.PolicyEnd { return v1.PolicyEnd{Address: netip.MustParseAddr(addr), Kind: "pod"} }
	allowed, denied := v1.PolicyDecision{Allowed: true, Reason: "rule"}, v1.PolicyDecision{Reason: "default deny"}
	change := func(to string, count uint64, now, then v1.PolicyVerdict) v1.PolicyFlowChange {
		return v1.PolicyFlowChange{From: end("10.1.0.1"), To: end(to), Protocol: "TCP", Port: 80, Count: count, Now: now, Then: then}
	}
	sender := change("10.2.0.1", 3, v1.PolicyVerdict{Allowed: true, Egress: allowed, Ingress: elsewhere}, v1.PolicyVerdict{Allowed: true, Egress: allowed, Ingress: elsewhere})
	receiver := change("10.2.0.1", 2, v1.PolicyVerdict{Allowed: true, Egress: elsewhere, Ingress: allowed}, v1.PolicyVerdict{Egress: elsewhere, Ingress: denied})
	other := change("10.2.0.9", 5, v1.PolicyVerdict{Allowed: true, Egress: allowed, Ingress: allowed}, v1.PolicyVerdict{Egress: denied, Ingress: allowed})
	got := joinDiffs([]v1.PolicyDiff{{Flows: 10, Changed: 2, Changes: []v1.PolicyFlowChange{sender, other}}, {Flows: 4, Changed: 1, Changes: []v1.PolicyFlowChange{receiver}}})
	want := v1.PolicyDiff{Flows: 14, Changed: 2, Changes: []v1.PolicyFlowChange{
		other,
		change("10.2.0.1", 3, v1.PolicyVerdict{Allowed: true, Egress: allowed, Ingress: allowed}, v1.PolicyVerdict{Egress: allowed, Ingress: denied}),
	}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
}
