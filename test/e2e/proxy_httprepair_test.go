package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/api/v1/client"
	"porin.dev/porin/internal/testutil"
)

// proxyDamages are changes that another program on the node may make to the way into the proxy.
var proxyDamages = []string{
	"ip link del porin-l7",
	"ip link set porin-l7 down",
	"ip addr flush dev porin-l7",
	"ip rule del pref 91; ip -6 rule del pref 91",
	"ip rule del pref 92; ip -6 rule del pref 92",
	"ip route flush table 10247; ip -6 route flush table 10247",
	"nft delete table inet porin-proxy",
	"nft flush ruleset",
	"echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 1 >/proc/sys/net/ipv4/conf/porin-l7/rp_filter; echo 1 >/proc/sys/net/ipv6/conf/porin-l7/disable_ipv6",
}

// TestHTTPRulesDamage has requests pass again after each damage, without a restart.
func TestHTTPRulesDamage(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	serveWeb(t, n.d)
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
	for _, damage := range proxyDamages {
		n.shell(damage)
		for _, six := range []bool{false, true} {
			for _, p := range []party{n.b, n.d} {
				testutil.Eventually(t, func() error {
					status, body, err := get(webClient(t, n.a.Namespace, false), p.at(six, webPort), "/public/x")
					if err == nil && status != http.StatusOK {
						err = fmt.Errorf("status %d", status)
					}
					if err == nil && !fromProxy(body) {
						err = fmt.Errorf("%q has not come through the proxy", body)
					}
					if err != nil {
						return fmt.Errorf("%s: IPv6 %v, to %s: %w", damage, six, p.name, err)
					}
					return nil
				})
				if status, body, err := get(webClient(t, n.a.Namespace, false), p.at(six, webPort), "/private"); err != nil || status != http.StatusForbidden {
					t.Errorf("%s: IPv6 %v, to %s: denied path: %d %q, %v", damage, six, p.name, status, body, err)
				}
			}
		}
	}
}

// fromProxy reports whether the server has seen one of the proxy's ports.
func fromProxy(body string) bool {
	port := body[strings.LastIndexByte(body, ':')+1:]
	return len(port) == 5 && port >= "61000"
}

// shell runs commands on the first node.
func (n *serviceNodes) shell(script string) string {
	n.Helper()
	testutil.NeedPrograms(n, "ip", "nft")
	cmd := exec.Command("sh", "-ec", script)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := n.one.node.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		n.Fatalf("%s: %v: %s", script, err, stderr.String())
	}
	return out.String()
}

// TestHTTPRulesGone deletes the only policy with HTTP rules: an open connection goes on, and with its end nothing is
// left on the node.
func TestHTTPRulesGone(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
	status := func() (inUse bool, ruleSets, connections int) {
		t.Helper()
		s, err := n.one.api.Status(t.Context())
		if err != nil || s.Proxy.Error != "" {
			t.Fatalf("status of the proxy: %+v, %v", s.Proxy, err)
		}
		return s.Proxy.InUse, s.Proxy.RuleSets, s.Proxy.Connections
	}
	conn := keptRequest(t, n.a.Namespace, n.b.at(false, webPort), "/public/x")
	if inUse, sets, connections := status(); !inUse || sets == 0 || connections != 1 {
		t.Errorf("in use %v, %d sets, %d connections: want it in use with one connection", inUse, sets, connections)
	}
	if err := n.one.api.DeletePolicy(t.Context(), "CiliumNetworkPolicy", "demo", "web"); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, func() error {
		if _, sets, _ := status(); sets > 0 {
			return fmt.Errorf("the proxy has %d sets of rules", sets)
		}
		return nil
	})
	fmt.Fprintf(conn, "GET /any HTTP/1.1\r\nHost: x\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	if read, err := conn.Read(make([]byte, 100)); err != nil {
		t.Errorf("the open connection: %d bytes, %v", read, err)
	}
	conn.Close()
	testutil.Eventually(t, func() error {
		text := n.shell("ip link; ip rule; ip -6 rule; nft list ruleset")
		for _, name := range []string{"porin-l7", "10247", "porin-proxy"} {
			if strings.Contains(text, name) {
				return fmt.Errorf("%s is in\n%s", name, text)
			}
		}
		if inUse, _, _ := status(); inUse {
			return errors.New("the proxy is in use")
		}
		return nil
	})
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
	checkHTTP(t, true, n.httpEgress(true)[:1])
}

// TestFlowsOfHTTPRules has connections go through the proxy: each is shown once as allowed, with what may be asked for,
// and its request once; nothing is shown as dropped.
func TestFlowsOfHTTPRules(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	for _, p := range []party{n.b, n.d} {
		serveWeb(t, p)
	}
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
	n.forEachFamily(func(t *testing.T, six bool) {
		_, seq := n.flowsNow()
		cases := n.httpEgress(six)[:4]
		for _, c := range cases {
			status, body, err := get(webClient(t, c.from.Namespace, false), c.to, "/public/x")
			if err != nil || status != http.StatusOK {
				t.Errorf("%s: %d %q, %v", c.name, status, body, err)
			}
		}
		seen, flows := map[string]int{}, 0
		ctx, cancel := context.WithTimeout(t.Context(), reach)
		defer cancel()
		for f, err := range n.one.api.Flows(ctx, client.FlowOptions{Since: seq, Follow: true}) {
			if err != nil {
				t.Fatalf("flows: %v; seen %v", err, seen)
			}
			if f.Verdict != v1.FlowAllowed {
				t.Errorf("shown as %s (%s): %s", f.Verdict, f.Reason, flowText(f))
			}
			switch to := netip.AddrPortFrom(f.To.Address, f.To.Port).String(); {
			case f.HTTP != nil:
				seen["request to "+to]++
			case f.From.Port < 61000 && f.Egress != nil && len(f.Egress.Layer7) > 0:
				seen["connection to "+to]++
			}
			if flows++; flows == 2*len(cases) {
				break
			}
		}
		want := map[string]int{}
		for _, p := range []party{n.b, n.d} { // directly, and by a Service
			to := p.at(six, webPort).String()
			want["connection to "+to], want["request to "+to] = 2, 2
		}
		if !maps.Equal(seen, want) {
			t.Errorf("shown: %v, want %v", seen, want)
		}
	})
}

// TestHTTPRulesHostFirewall has a chain INPUT of the node that lets nothing in but what docs/policy-troubleshooting.md
// says.
func TestHTTPRulesHostFirewall(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	serveWeb(t, n.d)
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + publicOnly + "}]}")
	n.shell("nft add table inet firewall; nft add chain inet firewall input '{ type filter hook input priority 0; policy drop; }'")
	n.shell("nft add rule inet firewall input meta l4proto ipv6-icmp accept")
	if conn, err := n.a.Dial(n.b.at(false, webPort), deniedTime); err == nil {
		conn.Close()
		t.Error("a connection through a closed chain INPUT: the rules of docs/policy-troubleshooting.md are not needed any more")
	}
	n.shell("nft add rule inet firewall input meta mark and 0xfff == 0xa8 accept; nft add rule inet firewall input iifname porin-l7 accept")
	for _, six := range []bool{false, true} {
		checkHTTP(t, six, n.httpEgress(six)[:4])
	}
}
