package bpf_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// The proxy applies rules of one end.
const (
	getFromServer = "{endpointSelector: {matchLabels: {app: client}}, egress: [{toEndpoints: [{}], toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{method: GET}]}}]}]}"
	getFromClient = "{endpointSelector: {matchLabels: {app: server}}, ingress: [{fromEndpoints: [{}], toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{method: GET}]}}]}]}"
)

// cilium applies a CiliumNetworkPolicy of the namespace shop.
func (p *policyFixture) cilium(t testing.TB, name, spec string) {
	t.Helper()
	policies, err := manifest.Read(fmt.Appendf(nil, "apiVersion: cilium.io/v2\nkind: CiliumNetworkPolicy\nmetadata: {name: %s, namespace: shop}\nspec: %s\n", name, spec))
	if err != nil {
		t.Fatal(err)
	}
	p.apply(t, engine.Update{SetPolicies: policies})
}

// proxyLink makes a device for the proxy, and returns its index.
func (p *policyFixture) proxyLink(t testing.TB) int {
	t.Helper()
	link, err := p.netns.AddVeth(testutil.Veth{Name: "proxy", MAC: mac(90), Peer: p.netns, PeerName: "proxypeer", PeerMAC: mac(91)})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.objects.ProxyLink.Put(uint32(0), uint32(link.Attrs().Index)); err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Index
}

// down is a segment from an address to the server's port, as the stack sends it to the pod.
func (p *policyFixture) down(from netip.Addr, flags func(*layers.TCP)) []byte {
	return segment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(from, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), flags)
}

// TestRedirect has a connection that the proxy decides about go through the stack, and from to_pod to the proxy.
func TestRedirect(t *testing.T) {
	for name, spec := range map[string]string{"egress": getFromServer, "ingress": getFromClient} {
		t.Run(name, func(t *testing.T) {
			p := newPolicyFixture(t)
			p.cilium(t, "get", spec)
			arrives := func(flags func(*layers.TCP)) uint32 {
				return p.request(t, p.objects.ToPod, p.server, &p.client, p.down(p.client.ip4, flags))
			}
			wantVerdict(t, "the client's SYN", p.fromClient(t, syn), toStack)
			if err := p.objects.ProxyLink.Put(uint32(0), uint32(0)); err != nil {
				t.Fatal(err)
			}
			wantVerdict(t, "without a proxy", arrives(syn), dropped)
			p.wantDrops(t, p.server, abi.DropProxy, 1)
			p.proxyLink(t)
			wantVerdict(t, "with a proxy", arrives(syn), deliver)
			wantVerdict(t, "a segment that does not belong to a connection of the proxy", arrives(ack), deliver)
			p.wantDrops(t, p.server, abi.DropProxy, 1)
			from := p.redirectOf(t, p.client.ip4)
			if from.Source.IP() != p.client.ip4 || from.Id != p.client.id || from.FromNode != 0 || from.Generation != 1 {
				t.Errorf("the proxy is told of %+v, want the client", from)
			}
			if n := len(p.connections(t)); n != 1 {
				t.Errorf("there are %d entries, want the client's alone", n)
			}
			wantVerdict(t, "another port", p.between(t, p.client, p.server, clientPort, 81, syn), dropped)
		})
	}
}

// redirectOf returns what the proxy is told of a connection from the address to the server.
func (p *policyFixture) redirectOf(t testing.TB, from netip.Addr) (value abi.Redirect) {
	t.Helper()
	if err := p.objects.Redirects.Lookup(p.redirectKey(from, clientPort), &value); err != nil {
		t.Fatal(err)
	}
	return value
}

// redirectKey is a connection from the address and port to the server.
func (p *policyFixture) redirectKey(from netip.Addr, port uint16) abi.RedirectKey {
	return abi.RedirectKey{
		Client: abi.AddrOf(from), Server: abi.AddrOf(p.server.ip4), ClientPort: abi.Port(port), ServerPort: abi.Port(serverPort), Protocol: 6, Family: 4,
	}
}

// TestRedirectMasqueraded has the node translate the client's address: the proxy is told the real one.
func TestRedirectMasqueraded(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	p.cilium(t, "get", getFromServer)
	wantVerdict(t, "the client's SYN", p.fromClient(t, syn), toStack)
	wantVerdict(t, "as the node", p.request(t, p.objects.ToPod, p.server, &p.client, p.down(nodeIPv4, syn)), deliver)
	if from := p.redirectOf(t, nodeIPv4); from.Source.IP() != p.client.ip4 || from.Id != p.client.id {
		t.Errorf("the proxy is told of %+v, want the client", from)
	}
}

// TestRedirectFromOutside has rules for what comes by an uplink: from a pod that nothing is known of, under the rules
// for pods.
func TestRedirectFromOutside(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	p.cilium(t, "get", "{endpointSelector: {matchLabels: {app: server}}, ingress: [{toPorts: [{ports: [{port: '80', protocol: TCP}], rules: {http: [{}]}}]}]}")
	wantVerdict(t, "from outside", p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, p.down(outsider, syn)), deliver)
	if from := p.redirectOf(t, outsider); from.Source.IP() != outsider || from.Id != 0 || from.FromNode != 0 {
		t.Errorf("the proxy is told of %+v, want the outsider", from)
	}
	wantVerdict(t, "from outside, as a pod of this node", p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, p.down(p.client.ip4, syn)), deliver)
	if from := p.redirectOf(t, p.client.ip4); from.Source.IP().IsValid() || from.Id != 0 {
		t.Errorf("the proxy is told of %+v, want no source", from)
	}
	node, _ := p.run(t, p.objects.ToPod, p.server, p.down(nodeIPv4, syn))
	wantVerdict(t, "the node itself, which every pod accepts", node, toStack)
}

// TestRedirectFromProxy has the proxy connect to the server as the client. Only its mark, and only on what the node has
// sent, passes.
func TestRedirectFromProxy(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	p.cilium(t, "get", getFromClient)
	as := func(from skBuff) uint32 {
		return p.runFrom(t, p.objects.ToPod, p.server, from, p.down(p.client.ip4, syn))
	}
	wantVerdict(t, "the proxy, with other bits", as(skBuff{Mark: abi.ProxyMark | 0x4000}), toStack)
	wantVerdict(t, "the node without mark", as(skBuff{}), deliver)
	wantVerdict(t, "a diverted packet's mark", as(skBuff{Mark: abi.ProxyDivertMark}), deliver)
	wantVerdict(t, "what comes by an uplink with the mark", as(skBuff{Mark: abi.ProxyMark, IngressIfindex: uint32(p.uplink.index)}), dropped)
	p.policy(t, "isolate", isolate)
	p.apply(t, engine.Update{RemovePolicies: []model.PolicyID{{Kind: model.KindCiliumNetworkPolicy, Namespace: "shop", Name: "get"}}})
	wantVerdict(t, "the proxy, without a policy that accepts it", as(skBuff{Mark: abi.ProxyMark}), dropped)
	reset := func(from skBuff) uint32 {
		return p.runFrom(t, p.objects.ToPod, p.server, from, p.down(p.client.ip4, rst))
	}
	wantVerdict(t, "the proxy's reset", reset(skBuff{Mark: abi.ProxyMark}), toStack)
	wantVerdict(t, "the node's reset", reset(skBuff{}), dropped)
	wantVerdict(t, "a reset by an uplink with the mark", reset(skBuff{Mark: abi.ProxyMark, IngressIfindex: uint32(p.uplink.index)}), dropped)
}

// TestRedirectReply has the server answer. Once policies have changed, its answer needs a connection of the proxy's in
// the node's namespace.
func TestRedirectReply(t *testing.T) {
	for _, proxied := range []bool{true, false} {
		t.Run(fmt.Sprint("by the proxy ", proxied), func(t *testing.T) {
			p := newPolicyFixture(t)
			p.proxyLink(t)
			wantVerdict(t, "SYN", p.runFrom(t, p.objects.ToPod, p.server, skBuff{Mark: abi.ProxyMark}, p.down(p.client.ip4, syn)), toStack)
			answers := func() uint32 {
				verdict, _ := p.run(t, p.objects.FromPod, p.server,
					segment(p.server.mac, p.server.hostMAC, netip.AddrPortFrom(p.server.ip4, serverPort), netip.AddrPortFrom(p.client.ip4, clientPort), synACK))
				return verdict
			}
			wantVerdict(t, "the answer", answers(), toStack)
			p.cilium(t, "get", getFromClient)
			want := uint32(dropped)
			if proxied {
				p.proxyConnects(t, clientPort, p.server.ip4)
				want = toStack
			}
			wantVerdict(t, "the answer under rules of layer 7", answers(), want)
		})
	}
}

// TestRedirectReplyTranslated: the server answers on a connection of the proxy's to which the node has given another
// source port, as the proxy's chosen port was in use. A policy changes meanwhile.
func TestRedirectReplyTranslated(t *testing.T) {
	const port = abi.ProxyFirstPort + 234
	p := newPolicyFixture(t)
	loadConntrack(t, p.netns)
	p.proxyLink(t)
	client, server := netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort)
	conversation{p.fixture, client, server, false}.addToConntrack(t, netip.AddrPortFrom(client.Addr(), port), server, client)
	wantVerdict(t, "SYN", p.runFrom(t, p.objects.ToPod, p.server, skBuff{Mark: abi.ProxyMark}, p.down(p.client.ip4, syn)), toStack)
	p.cilium(t, "get", getFromClient)
	p.proxyConnects(t, port, p.server.ip4)
	for _, lost := range []bool{false, true} {
		if lost {
			p.forgetConnections(t)
		}
		verdict, _ := p.run(t, p.objects.FromPod, p.server, segment(p.server.mac, p.server.hostMAC, server, client, synACK))
		wantVerdict(t, fmt.Sprint("the answer, without an entry: ", lost), verdict, toStack)
	}
}

// TestRedirectAnswerToClient: the proxy answers a client whose port a connection of the proxy's own to the same server
// has. Answers of a server on the node are for that one, also when its sockets have the mark of the SYN they got.
func TestRedirectAnswerToClient(t *testing.T) {
	const port = abi.ProxyFirstPort + 7
	for _, c := range []struct {
		name   string
		server func(*policyFixture) netip.Addr
		mark   uint32
		want   uint32
	}{
		{"the proxy", func(p *policyFixture) netip.Addr { return p.server.ip4 }, abi.ProxyMark, toStack},
		{"somebody else of the node", func(p *policyFixture) netip.Addr { return p.server.ip4 }, 0, deliver},
		{"a server on the node", func(*policyFixture) netip.Addr { return nodeIPv4 }, 0, deliver},
		{"a server on the node with the mark", func(*policyFixture) netip.Addr { return nodeIPv4 }, abi.ProxyMark, deliver},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPolicyFixture(t)
			p.proxyLink(t)
			p.cilium(t, "get", getFromServer)
			p.proxyConnects(t, port, c.server(p))
			answer := segment(p.client.hostMAC, p.client.mac, netip.AddrPortFrom(c.server(p), serverPort), netip.AddrPortFrom(p.client.ip4, port), synACK)
			wantVerdict(t, "SYN-ACK", p.runFrom(t, p.objects.ToPod, p.client, skBuff{Mark: c.mark}, answer), c.want)
		})
	}
}

// proxyConnects makes a socket in the namespace that is connected from the client's address and the port to a server.
func (p *policyFixture) proxyConnects(t testing.TB, port uint16, server netip.Addr) {
	t.Helper()
	handle := p.netns.Netlink(t)
	lo := p.netns.Link(t, "lo")
	for _, ip := range []netip.Addr{p.client.ip4, server} {
		if err := handle.AddrReplace(lo, &netlink.Addr{IPNet: nl.HostNet(ip)}); err != nil {
			t.Fatal(err)
		}
	}
	listener := p.netns.Listen(t, netip.AddrPortFrom(server, serverPort))
	var conn net.Conn
	err := p.netns.Do(func() (err error) {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.client.ip4, port))}
		conn, err = dialer.Dial("tcp", listener.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
}

// TestRedirectOpenShortcut has rules appear for a connection past the stack: it goes to the stack, and its answers
// nowhere. A reset goes to the other end.
func TestRedirectOpenShortcut(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	wantVerdict(t, "SYN", p.fromClient(t, syn), deliver)
	wantVerdict(t, "SYN-ACK", p.fromServer(t, synACK), deliver)
	p.cilium(t, "get", getFromServer)
	wantVerdict(t, "the client's reset", p.fromClient(t, rst), deliver)
	wantVerdict(t, "the server's segment", p.fromServer(t, ack), dropped)
	p.wantDrops(t, p.server, abi.DropProxy, 1)
	wantVerdict(t, "the client's segment", p.fromClient(t, ack), toStack)
	wantVerdict(t, "and at the server's end", p.request(t, p.objects.ToPod, p.server, &p.client, p.down(p.client.ip4, ack)), deliver)
	wantVerdict(t, "the client's reset by the stack", p.request(t, p.objects.ToPod, p.server, &p.client, p.down(p.client.ip4, rst)), toStack)
	wantVerdict(t, "the server's reset", p.fromServer(t, rst), deliver)
	p.wantDrops(t, p.server, abi.DropProxy, 1)
}

// deny removes the layer 7 rules, and isolates the server.
func (p *policyFixture) deny(t testing.TB) {
	t.Helper()
	p.policy(t, "isolate", isolate)
	p.apply(t, engine.Update{RemovePolicies: []model.PolicyID{{Kind: model.KindCiliumNetworkPolicy, Namespace: "shop", Name: "get"}}})
}

// TestRedirectOpenStack has rules for its server appear for a connection from another host: only a reset of the
// server's gets to the client.
func TestRedirectOpenStack(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	answers := func(flags func(*layers.TCP)) uint32 {
		verdict, _ := p.run(t, p.objects.FromPod, p.server,
			segment(p.server.mac, p.server.hostMAC, netip.AddrPortFrom(p.server.ip4, serverPort), netip.AddrPortFrom(outsider, clientPort), flags))
		return verdict
	}
	wantVerdict(t, "SYN", p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, p.down(outsider, syn)), toStack)
	wantVerdict(t, "SYN-ACK", answers(synACK), toStack)
	p.cilium(t, "get", from80)
	wantVerdict(t, "the answer", answers(ack), dropped)
	wantVerdict(t, "a reset", answers(rst), toStack)
	p.deny(t)
	wantVerdict(t, "a reset that policy denies", answers(rst), dropped)
}
