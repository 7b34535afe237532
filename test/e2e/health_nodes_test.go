package e2e

import (
	"fmt"
	"strings"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// seesNode waits until the node sees another one with this part at fault; "" for none, on all ways to the node and to
// its endpoint.
func (r *rig) seesNode(name, part string) {
	r.Helper()
	const ways = 6 // to the node by ICMP, to its endpoint by ICMP and HTTP, and each by both families
	testutil.Eventually(r, func() error {
		answer, err := r.api.Health(r.Context())
		if err != nil {
			return err
		}
		for _, n := range answer.Nodes {
			if n.Name != name {
				continue
			}
			if part == "" && n.Status == v1.HealthOK && len(n.Probes) == ways || part != "" && n.Status == v1.HealthFailing && len(n.Faults) == 1 && n.Faults[0].Part == part {
				return nil
			}
			return fmt.Errorf("%s sees %s %s by %d probes: %+v, want %q", r.node.Name, name, n.Status, len(n.Probes), n.Faults, part)
		}
		return fmt.Errorf("%s does not see %s", r.node.Name, name)
	})
}

// TestHealthBetweenNodes breaks one part of the way to a node after the other, and has the others name it.
func TestHealthBetweenNodes(t *testing.T) {
	t.Parallel()
	for _, w := range testutil.Sample(wirings...) {
		t.Run(w.name, func(t *testing.T) {
			fabric := w.make(t)
			c := newNodes(t, fabric, 3, append(w.flags, withHealth, "--health-probe-interval=1s")...)
			one, broken := c.nodes[0], c.nodes[2]
			all := func(part string) {
				t.Helper()
				one.seesNode(broken.node.Name, part)
				c.nodes[1].seesNode(broken.node.Name, part)
				one.seesNode(c.nodes[1].node.Name, "")
			}
			all("")
			if done := one.cli("health"); done.code != 0 || strings.Count(done.out, " ok ") < 2 {
				t.Errorf("porin health: %+v", done)
			}
			ep := broken.healthEndpoint().Addresses
			to := func(rule string) string {
				return fmt.Sprintf("chain forward { type filter hook forward priority 0; ip daddr %s %s drop; ip6 daddr %s %s drop; };", ep.IPv4, rule, ep.IPv6, rule)
			}
			faults := map[string]string{"endpoint-path": to(""), "policy": to("meta l4proto { icmp, icmpv6 }")}
			if w.name == "vxlan" { // HTTP comes from an address of the tunnel, and bypasses the node's stack
				delete(faults, "endpoint-path")
				faults["tunnel"] = fmt.Sprintf("chain input { type filter hook input priority 0; udp dport %d drop; };", broken.status().Network.Tunnel.Port)
			}
			for part, rules := range faults {
				onNode(t, broken.node, "table inet broken { "+rules+" }", "nft", "-f", "-")
				all(part)
				onNode(t, broken.node, "", "nft", "delete", "table", "inet", "broken")
				all("")
			}
			broken.agent.Kill(t)
			all("responder")
			if err := fabric.Disconnect(broken.node); err != nil {
				t.Fatal(err)
			}
			all("node")
			if done := one.cli("health"); done.code != 1 || !strings.Contains(done.out, "failing") {
				t.Errorf("porin health: %+v", done)
			}
			if err := fabric.Connect(broken.node); err != nil {
				t.Fatal(err)
			}
			broken.agent.Start(t)
			all("")
		})
	}
}
