package e2e

import (
	"net/netip"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// TestFirewallDropsForwarded: the doctor names the chain that drops packets of pods, once no connection is answered.
func TestFirewallDropsForwarded(t *testing.T) {
	r := newRig(t, "--masquerade=both")
	p := r.pod()
	server := netip.AddrPortFrom(testutil.OutsideIPv4, 8080)
	respond(t, r.node.Fabric.Namespace, "outside", server)
	onNode(t, r.node, "", "nft", "add table ip filter; add chain ip filter DOCKER-USER; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }")
	if len(r.forwardingFindings()) > 0 {
		t.Error("a finding before a pod has sent anything")
	}
	if conn, err := connectFrom(p.Namespace, server, unreachable); err == nil {
		conn.Close()
		t.Fatal("the firewall drops nothing")
	}
	const want = "chain FORWARD of nftables' table ip filter has policy drop; owner: Docker"
	if found := r.forwardingFindings(); len(found) != 1 || !strings.Contains(found[0].Detail, want) {
		t.Errorf("the doctor finds %+v, want one that says %q", found, want)
	}
	onNode(t, r.node, "", "nft", "add rule ip filter FORWARD iifname por* accept; add rule ip filter FORWARD oifname por* accept")
	conn, err := connectFrom(p.Namespace, server, reach)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if found := r.forwardingFindings(); len(found) > 0 {
		t.Errorf("the doctor finds %+v when a connection is answered", found)
	}
}

// TestFirewallAndPolicy: a firewall with policy drop accepts pods, and a policy denies all that the only pod sends. The doctor does not blame the firewall.
func TestFirewallAndPolicy(t *testing.T) {
	r := newRig(t, "--masquerade=both")
	p := r.labelled("p", "p")
	server := netip.AddrPortFrom(testutil.OutsideIPv4, 8080)
	respond(t, r.node.Fabric.Namespace, "outside", server)
	onNode(t, r.node, "", "nft", `add table ip filter
		add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }
		add rule ip filter FORWARD iifname por* accept
		add rule ip filter FORWARD oifname por* accept`)
	r.applyPolicy(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec: {podSelector: {matchLabels: {app: p}}, policyTypes: [Egress]}
`)
	if conn, err := connectFrom(p.Namespace, server, unreachable); err == nil {
		conn.Close()
		t.Fatal("policy denies nothing")
	}
	if found := r.forwardingFindings(); len(found) > 0 {
		t.Errorf("the doctor finds %+v", found)
	}
}

func (r *rig) forwardingFindings() (found []v1.Finding) {
	r.Helper()
	for _, f := range r.answered().Findings {
		if f.Kind == "forwarding-dropped" {
			found = append(found, f)
		}
	}
	return found
}
