package bpf_test

import (
	"net/netip"
	"strconv"
	"testing"

	"github.com/gopacket/gopacket/layers"
	"github.com/vishvananda/netlink"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/testutil"
)

// TestResetWithoutEntry has the reset of a direct connection pass, whose entry is lost, when layer 7 rules for it have
// come.
func TestResetWithoutEntry(t *testing.T) {
	p := newPolicyFixture(t)
	p.proxyLink(t)
	wantVerdict(t, "SYN", p.fromClient(t, syn), deliver)
	wantVerdict(t, "SYN-ACK", p.fromServer(t, synACK), deliver)
	p.cilium(t, "get", getFromServer)
	p.forgetConnections(t)
	if v := p.fromServer(t, rst); v == dropped {
		t.Error("the server's reset is dropped when there is no entry")
	}
}

// otherNode is a fixture with a pod carol of another node, whose connections with the client go past the stack.
type otherNode struct {
	*policyFixture
	client, carol netip.AddrPort
}

func newOtherNode(t *testing.T) otherNode {
	t.Helper()
	p := newPolicyFixture(t)
	loadConntrack(t, p.netns)
	p.proxyLink(t)
	handle := p.netns.Netlink(t)
	p.netns.Sysctl(t, "net/ipv4/conf/all/forwarding", "1")
	for _, one := range []party{p.client, p.uplink} {
		if err := handle.LinkSetUp(testutil.LinkAt(one.index)); err != nil {
			t.Fatal(err)
		}
	}
	block := netip.MustParsePrefix("10.1.0.0/24")
	route := testutil.GatewayRoute(p.uplink.index, block, netip.MustParseAddr("192.0.2.7"))
	route.Flags = int(netlink.FLAG_ONLINK)
	if err := handle.RouteAdd(route); err != nil {
		t.Fatal(err)
	}
	if err := p.objects.RemoteBlocks.Put(abi.CIDRKeyOf(block), uint32(1)); err != nil {
		t.Fatal(err)
	}
	carol := netip.MustParseAddr("10.1.0.9")
	p.apply(t, engine.Update{SetEndpoints: []model.Endpoint{{Key: "shop/carol", Kind: model.Pod, Namespace: "shop", Labels: map[string]string{"app": "carol"}, Addresses: []netip.Addr{carol}}}})
	return otherNode{p, netip.AddrPortFrom(p.client.ip4, clientPort), netip.AddrPortFrom(carol, serverPort)}
}

var ingressToClient = "{endpointSelector: {matchLabels: {app: client}}, ingress: [{toPorts: [{ports: [{port: '" + strconv.Itoa(clientPort) + "', protocol: TCP}], rules: {http: [{}]}}]}]}"

// out has the client send a segment to carol.
func (o otherNode) out(t *testing.T, flags func(*layers.TCP)) uint32 {
	t.Helper()
	p := o.policyFixture
	verdict, _ := p.run(t, p.objects.FromPod, p.client, segment(p.client.mac, p.client.hostMAC, o.client, o.carol, flags))
	return verdict
}

// in has carol send a segment to the client.
func (o otherNode) in(t *testing.T, flags func(*layers.TCP)) uint32 {
	t.Helper()
	p := o.policyFixture
	verdict, _ := p.run(t, p.objects.FromUplink, p.uplink, segment(p.uplink.mac, p.uplink.hostMAC, o.carol, o.client, flags))
	return verdict
}

// TestResetOfOtherNode has carol, of another node, reset a connection past the stack when layer 7 rules for its client
// have come: the client hears of it.
func TestResetOfOtherNode(t *testing.T) {
	p := newOtherNode(t)
	wantVerdict(t, "SYN", p.out(t, syn), deliver)
	wantVerdict(t, "SYN-ACK", p.in(t, synACK), deliver)
	wantVerdict(t, "ACK", p.out(t, ack), deliver)
	p.cilium(t, "get", getFromServer)
	wantVerdict(t, "carol's reset", p.in(t, rst), deliver)
	p.wantDrops(t, p.policyFixture.client, abi.DropProxy, 0)
	wantVerdict(t, "the client's next packet", p.out(t, ack), toStack)
}

// TestResetKnownToConntrack has the reset of a connection pass that only the node's conntrack knows.
func TestResetKnownToConntrack(t *testing.T) {
	p := newPolicyFixture(t)
	loadConntrack(t, p.netns)
	p.proxyLink(t)
	s, o := netip.AddrPortFrom(p.server.ip4, serverPort), netip.AddrPortFrom(outsider, clientPort)
	answers := func(flags func(*layers.TCP)) uint32 {
		verdict, _ := p.run(t, p.objects.FromPod, p.server, segment(p.server.mac, p.server.hostMAC, s, o, flags))
		return verdict
	}
	conversation{p.fixture, o, s, false}.addToConntrack(t, o, s, o)
	p.forgetConnections(t)
	wantVerdict(t, "an answer", answers(ack), toStack)
	p.forgetConnections(t)
	p.cilium(t, "get", from80)
	wantVerdict(t, "a reset", answers(rst), toStack)
	p.wantDrops(t, p.server, abi.DropProxy, 0)
	wantVerdict(t, "another answer, which the reset does not let pass", answers(ack), dropped)
}

// TestResetMakesNoConnection has carol send a reset for a connection that does not exist: her next SYN with the same
// ports goes to the proxy, as any other.
func TestResetMakesNoConnection(t *testing.T) {
	p := newOtherNode(t)
	p.cilium(t, "get", ingressToClient)
	p.in(t, rst)
	wantVerdict(t, "a SYN", p.in(t, syn), toNext)
	to := p.policyFixture.client
	wantVerdict(t, "the SYN by the stack", p.runFrom(t, p.objects.ToPod, to, skBuff{IngressIfindex: uint32(p.uplink.index)}, segment(to.hostMAC, to.mac, p.carol, p.client, syn)), deliver)
}
