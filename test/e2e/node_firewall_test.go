package e2e

import (
	"net/netip"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// TestFirewallDropsForwarded: with the rules of each firewall, the doctor names the chain that drops packets of pods
// once no connection is answered. What docs/troubleshooting.md has for that firewall lets pods connect and be connected
// to.
func TestFirewallDropsForwarded(t *testing.T) {
	for _, firewall := range []struct {
		name, load, accept, want string
	}{
		{"Docker", "iptables-nft-restore <docker.rules", "iptables-nft -I DOCKER-USER -i por+ -j ACCEPT && iptables-nft -I DOCKER-USER -o por+ -j ACCEPT",
			"chain FORWARD of nftables' table ip filter has policy drop; owner: Docker"},
		{"ufw", "iptables-nft-restore <ufw.rules", "iptables-nft -A ufw-user-forward -i por+ -j ACCEPT && iptables-nft -A ufw-user-forward -o por+ -j ACCEPT",
			"chain FORWARD of nftables' table ip filter has policy drop; owner: ufw"},
		{"firewalld", "nft -f firewalld.nft", "nft -f firewalld-accepts.nft",
			"chain filter_FORWARD of nftables' table inet firewalld has a last rule that drops or rejects everything; owner: firewalld"},
	} {
		t.Run(firewall.name, func(t *testing.T) {
			testutil.NeedPrograms(t, "iptables-nft-restore", "iptables-nft", "nft")
			r := newRig(t, "--masquerade=both")
			p := r.pod()
			r.node.Fabric.RoutePods(t, r.node)
			connections := []struct {
				from *testutil.Namespace
				to   netip.AddrPort
			}{
				{p.Namespace, netip.AddrPortFrom(testutil.OutsideIPv4, 8080)},
				{r.node.Fabric.Namespace, netip.AddrPortFrom(p.ipv4, 8080)},
			}
			respond(t, r.node.Fabric.Namespace, "outside", connections[0].to)
			respond(t, p.Namespace, "pod", connections[1].to)
			onNode(t, r.node, "", "sh", "-c", "cd testdata/firewalls && "+firewall.load)
			if len(r.forwardingFindings()) > 0 {
				t.Error("a finding before a pod has sent anything")
			}
			if err := testutil.Ping(p.Namespace, testutil.OutsideIPv4, unreachable); (err == nil) != (firewall.name == "ufw") {
				t.Errorf("ping: %v", err)
			}
			for _, c := range connections {
				if conn, err := connectFrom(c.from, c.to, unreachable); err == nil {
					conn.Close()
					t.Fatalf("the firewall lets a connection to %s pass", c.to)
				}
			}
			if found := r.forwardingFindings(); len(found) != 1 || !strings.Contains(found[0].Detail, firewall.want) {
				t.Errorf("the doctor finds %+v, want one that says %q", found, firewall.want)
			}
			onNode(t, r.node, "", "sh", "-c", "cd testdata/firewalls && "+firewall.accept)
			for _, c := range connections {
				conn, err := connectFrom(c.from, c.to, reach)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
			}
			if found := r.forwardingFindings(); len(found) > 0 {
				t.Errorf("the doctor finds %+v when a connection is answered", found)
			}
		})
	}
}

// TestFirewallAndPolicy: a firewall with policy drop accepts pods, and a policy denies all that the only pod sends. The
// doctor does not blame the firewall.
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
