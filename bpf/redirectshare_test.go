package bpf_test

import (
	"net/netip"
	"testing"

	"porin.dev/porin/bpf/abi"
)

// from80 accepts all HTTP to the server.
const from80 = "{endpointSelector: {matchLabels: {app: server}}, ingress: [{toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{}]}}]}]}"

// syns has a party open connections to the server by way of the proxy, from ports first to last.
func (p *policyFixture) syns(t *testing.T, from netip.Addr, sender *party, first, last uint16) {
	t.Helper()
	for port := uint32(first); port <= uint32(last); port++ {
		frame := segment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(from, uint16(port)), netip.AddrPortFrom(p.server.ip4, serverPort), syn)
		var verdict uint32
		if sender != nil {
			verdict = p.request(t, p.objects.ToPod, p.server, sender, frame)
		} else {
			verdict = p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, frame)
		}
		if verdict != deliver {
			t.Fatalf("port %d: verdict %d, want a redirect", port, int32(verdict))
		}
	}
}

// noted reports whether the proxy would be told of a connection from the address and port to the server.
func (p *policyFixture) noted(from netip.Addr, port uint16) bool {
	var value abi.Redirect
	return p.objects.Redirects.Lookup(p.redirectKey(from, port), &value) == nil
}

// notes counts what the proxy would be told of.
func (p *policyFixture) notes(t testing.TB) (n int) {
	t.Helper()
	var key abi.RedirectKey
	var value abi.Redirect
	entries := p.objects.Redirects.Iterate()
	for entries.Next(&key, &value) {
		n++
	}
	if err := entries.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRedirectFlood has a pod send SYNs from all its ports: others' connections that are being opened are known to the
// proxy afterwards.
func TestRedirectFlood(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	p.cilium(t, "get", from80)
	p.syns(t, outsider, nil, 1, 16)
	p.syns(t, p.client.ip4, &p.client, 1, 40_000)
	for port := uint16(1); port <= 16; port++ {
		if !p.noted(outsider, port) {
			t.Errorf("nothing is known any more of the connection from port %d of another host", port)
		}
	}
	for port := uint16(40_000); port > 40_000-16; port-- {
		if !p.noted(p.client.ip4, port) {
			t.Errorf("nothing is known of the pod's own last connections: port %d", port)
		}
	}
	if n := p.notes(t); n > abi.RedirectShare+16 {
		t.Errorf("%d connections are known, want no more than the pod's share of %d and 16 others", n, abi.RedirectShare)
	}
}

// TestRedirectReopen has a pod open connections from a few ports again and again, eight at a time: the proxy knows each
// of them.
func TestRedirectReopen(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	p.cilium(t, "get", from80)
	const ports, atATime = 100, 8
	for i := range 4 * abi.RedirectShare {
		port := uint16(1 + i%ports)
		p.syns(t, p.client.ip4, &p.client, port, port)
		if i < atATime {
			continue
		}
		accepted := uint16(1 + (i-atATime)%ports)
		if !p.noted(p.client.ip4, accepted) {
			t.Fatalf("connection %d: nothing is known of it", i-atATime)
		}
		p.syns(t, p.client.ip4, &p.client, accepted, accepted) // sent again
		if err := p.objects.Redirects.Delete(p.redirectKey(p.client.ip4, accepted)); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.notes(t); n != atATime {
		t.Errorf("%d connections are known, want the %d that were not accepted", n, atATime)
	}
}

// TestRedirectOld has a pod send again what it has sent a while ago, as a resolver does that keeps its port, and open
// other connections: the proxy knows of it as of a new one, however old it is.
func TestRedirectOld(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	p.cilium(t, "get", from80)
	for _, others := range []uint16{1, abi.RedirectShare / 4, abi.RedirectShare/2 - 2, abi.RedirectShare / 2, abi.RedirectShare - 1, abi.RedirectShare} {
		p.syns(t, p.client.ip4, &p.client, 1000, 1000)
		p.syns(t, p.client.ip4, &p.client, 2000, 2000+others-1)
		p.syns(t, p.client.ip4, &p.client, 1000, 1000)
		for port := uint16(10_000); port < 10_000+abi.RedirectShare/2-1; port++ {
			p.syns(t, p.client.ip4, &p.client, port, port)
			if !p.noted(p.client.ip4, 1000) {
				t.Fatalf("%d others before, and %d after: nothing is known of it", others, port-9999)
			}
		}
		for _, port := range []uint16{1000, 2000, 10_000} {
			_ = p.objects.Redirects.Delete(p.redirectKey(p.client.ip4, port))
		}
	}
	if n := p.notes(t); n > abi.RedirectShare {
		t.Errorf("%d connections are known, want the pod's share of %d at most", n, abi.RedirectShare)
	}
}

// TestRedirectUsage has both legs of a connection through the proxy count in the share of the pod that has opened it,
// and none in the server's.
func TestRedirectUsage(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	p.cilium(t, "get", from80)
	wantVerdict(t, "the client's SYN", p.fromClient(t, syn), toStack)
	p.syns(t, p.client.ip4, &p.client, clientPort, clientPort)
	wantVerdict(t, "the proxy's SYN", p.runFrom(t, p.objects.ToPod, p.server, skBuff{Mark: abi.ProxyMark}, p.down(p.client.ip4, syn)), toStack)
	if n := len(p.connections(t)); n != 2 {
		t.Errorf("%d entries, want one at either pod", n)
	}
	for _, pod := range []struct {
		party
		want uint32
	}{{p.client, 2}, {p.server, 0}} {
		var usage abi.Usage
		if err := p.objects.Usage.Lookup(uint32(pod.id), &usage); err != nil {
			t.Fatal(err)
		}
		if got := usage.Connections(); got != pod.want {
			t.Errorf("%d entries count in the share of pod %d, want %d", got, pod.id, pod.want)
		}
	}
}
