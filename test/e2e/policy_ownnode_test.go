package e2e

import (
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

const ofAnyBlock = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: any, namespace: shop}
spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 0.0.0.0/0, except: [172.16.0.0/12]}}]}]}
`

// TestPolicyBlocksOfOwnNode has an egress policy that names addresses: of the pod's own node, it reaches those that the
// policy allows, whatever other addresses the node has or gets.
func TestPolicyBlocksOfOwnNode(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client := r.labelled("client", "client")
	v4, v6 := r.node.Echo(t, r.node.IPv4), r.node.Echo(t, r.node.IPv6)
	r.applyPolicy(ofAnyBlock)
	explained := func(to netip.AddrPort) string {
		out, _ := r.porin("policy", "explain", "--from", "shop/client", "--to", to.Addr().String(), "--port", strconv.Itoa(int(to.Port())))
		return out
	}
	wants := func(to netip.AddrPort, allowed bool) {
		t.Helper()
		within := deniedTime
		if allowed {
			within = answerTime
		}
		if err := testutil.RoundTrip(client.Namespace, to, within); (err == nil) != allowed {
			t.Errorf("%s: error %v, want it allowed: %t", to, err, allowed)
		}
		if out := explained(to); strings.Contains(out, "Verdict:   allowed") != allowed {
			t.Errorf("%s: want it allowed: %t, and it is explained as\n%s", to, allowed, out)
		}
	}
	wants(v4, true)
	wants(v6, false)
	open, err := client.Dial(v4, answerTime)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()

	bridge := netip.MustParseAddr("172.17.0.1")
	if err := r.node.Netlink(t).AddrAdd(testutil.LinkAt(1), testutil.Address(netip.PrefixFrom(bridge, 32))); err != nil {
		t.Fatal(err)
	}
	server := r.node.Echo(t, bridge)
	testutil.Eventually(t, func() error {
		if out := explained(server); !strings.Contains(out, "host") {
			return fmt.Errorf("the agent does not know the address as the node's: %s", out)
		}
		return nil
	})
	wants(server, false)
	wants(v4, true)
	if _, err := open.Write([]byte("hello")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(open, make([]byte, 5)); err != nil {
		t.Errorf("an open connection to an allowed address has ended: %v", err)
	}

	// The next agent finds what it would write.
	r.applyPolicy(strings.NewReplacer("name: any", "name: bridge", "0.0.0.0/0, except: [172.16.0.0/12]", bridge.String()+"/32").Replace(ofAnyBlock))
	if out, err := r.porin("policy", "delete", "shop/any"); err != nil {
		t.Fatal(err, out)
	}
	r.applyPolicy(ofAnyBlock)
	before := onNode(t, r.node, "", "nft", "-s", "list", "table", "inet", "porin")
	r.agent.Stop(t)
	r.agent.Start(t)
	wants(server, true)
	wants(v4, true)
	if after := onNode(t, r.node, "", "nft", "-s", "list", "table", "inet", "porin"); after != before {
		t.Errorf("the restart has changed the table, and packets may pass meanwhile:\n%s\nbefore\n%s", after, before)
	}
}
