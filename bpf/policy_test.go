package bpf_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/oracle"
)

// policyFixture is a cluster with the pods client and server, which have the labels app=client and app=server.
type policyFixture struct {
	*cluster
	e              *engine.Engine
	client, server party
}

var outsider = netip.MustParseAddr("198.51.100.9")

func newPolicyFixture(t *testing.T, switches ...string) *policyFixture {
	c := newCluster(t, switches...)
	c.writer, c.numbers = c.newWriter(), map[string]uint16{"shop/client": 1, "shop/server": 2}
	p := &policyFixture{cluster: c, e: engine.New(engine.Config{})}
	var u engine.Update
	for i, name := range []string{"client", "server"} {
		link := &c.links[i]
		link.ip4, link.ip6 = netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + i)}), netip.AddrFrom16([16]byte{0: 0xfd, 15: byte(1 + i)})
		c.register(t, *link)
		u.SetEndpoints = append(u.SetEndpoints, model.Endpoint{
			Key: "shop/" + name, Kind: model.Pod, Local: true, Namespace: "shop", Labels: map[string]string{"app": name}, Addresses: []netip.Addr{link.ip4, link.ip6},
		})
	}
	u.SetEndpoints = append(u.SetEndpoints, model.Endpoint{Key: "host", Kind: model.Host, Addresses: []netip.Addr{nodeIPv4}})
	p.client, p.server = c.links[0], c.links[1]
	p.reset(t)
	p.apply(t, u)
	return p
}

var nodeIPv4 = netip.MustParseAddr("192.0.2.1")

func (p *policyFixture) apply(t testing.TB, u engine.Update) {
	t.Helper()
	change := p.e.Apply(u)
	if err := p.writer.Apply(p.e, &change, p.numbers); err != nil {
		t.Fatal(err)
	}
}

// policy applies a NetworkPolicy of the namespace shop, whose specification this is.
func (p *policyFixture) policy(t testing.TB, name, spec string) {
	t.Helper()
	policies, err := manifest.Read(fmt.Appendf(nil, "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: %s, namespace: shop}\nspec: %s\n", name, spec))
	if err != nil {
		t.Fatal(err)
	}
	p.apply(t, engine.Update{SetPolicies: policies})
}

func (p *policyFixture) remove(t testing.TB, name string) {
	t.Helper()
	p.apply(t, engine.Update{RemovePolicies: []model.PolicyID{{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: name}}})
}

const (
	denyIngress = "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress]}"
	denyEgress  = "{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress]}"
	isolate     = "{podSelector: {}, policyTypes: [Ingress, Egress]}"
	fromClient  = "{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}"
	toServer    = "{podSelector: {matchLabels: {app: client}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: server}}}], ports: [{port: 80}]}]}"
)

const clientPort, serverPort = 1000, 80

// fromClient, fromServer: packets of a pod to the other one.
func (p *policyFixture) fromClient(t testing.TB, flags func(*layers.TCP)) uint32 {
	t.Helper()
	return p.between(t, p.client, p.server, clientPort, serverPort, flags)
}

func (p *policyFixture) fromServer(t testing.TB, flags func(*layers.TCP)) uint32 {
	t.Helper()
	return p.between(t, p.server, p.client, serverPort, clientPort, flags)
}

func (p *policyFixture) between(t testing.TB, from, to party, source, destination uint16, flags func(*layers.TCP)) uint32 {
	t.Helper()
	frame := segment(from.mac, from.hostMAC, netip.AddrPortFrom(from.ip4, source), netip.AddrPortFrom(to.ip4, destination), flags)
	verdict, _ := p.run(t, p.objects.FromPod, from, frame)
	return verdict
}

func wantVerdict(t testing.TB, what string, got, want uint32) {
	t.Helper()
	if got != want {
		t.Errorf("%s: verdict %d, want %d", what, int32(got), int32(want))
	}
}

func (p *policyFixture) wantDrops(t testing.TB, pod party, reason abi.DropReason, want uint64) {
	t.Helper()
	if got := p.traffic(t, pod.id).Drops[reason]; got != want {
		t.Errorf("%d packets of pod %d were dropped as %s, want %d", got, pod.id, reason, want)
	}
}

// TestPolicyReply denies the server all it would open itself: it answers all the same.
func TestPolicyReply(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "isolate", isolate)
	wantVerdict(t, "a SYN that nothing allows", p.fromClient(t, syn), dropped)
	p.wantDrops(t, p.client, abi.DropPolicyEgress, 1)
	p.policy(t, "to", toServer)
	wantVerdict(t, "a SYN that the server's policy denies", p.fromClient(t, syn), dropped)
	p.wantDrops(t, p.client, abi.DropPolicyIngress, 1)
	if n := len(p.connections(t)); n != 0 {
		t.Errorf("denied packets have made %d entries", n)
	}
	p.policy(t, "from", fromClient)
	wantVerdict(t, "an allowed SYN", p.fromClient(t, syn), deliver)
	wantVerdict(t, "its answer", p.fromServer(t, synACK), deliver)
	wantVerdict(t, "another port", p.between(t, p.client, p.server, clientPort, 81, syn), dropped)
	wantVerdict(t, "the server's own SYN", p.between(t, p.server, p.client, 5000, serverPort, syn), dropped)
}

// TestPolicyRevoked takes away and gives back a right while a connection is open, at either end.
func TestPolicyRevoked(t *testing.T) {
	for name, revoke := range map[string]string{"ingress": denyIngress, "egress": denyEgress} {
		t.Run(name, func(t *testing.T) {
			p := newPolicyFixture(t)
			wantVerdict(t, "SYN", p.fromClient(t, syn), deliver)
			wantVerdict(t, "SYN-ACK", p.fromServer(t, synACK), deliver)
			wantVerdict(t, "ACK", p.fromClient(t, ack), deliver)
			p.policy(t, "revoke", revoke)
			for range 2 {
				wantVerdict(t, "a request after the right was revoked", p.fromClient(t, ack), dropped)
				wantVerdict(t, "a reply after it was revoked", p.fromServer(t, ack), dropped)
			}
			p.remove(t, "revoke")
			wantVerdict(t, "a request with the right again", p.fromClient(t, ack), deliver)
			wantVerdict(t, "a reply with the right again", p.fromServer(t, ack), deliver)
		})
	}
}

// TestPolicyRevisionWraps revokes a right when the revision of the policy is the last there is, and the next one is 0.
func TestPolicyRevisionWraps(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "from", fromClient)
	for _, id := range []uint16{p.client.id, p.server.id} {
		var policy abi.Policy
		if err := p.objects.Policies.Lookup(uint32(id), &policy); err != nil {
			t.Fatal(err)
		}
		policy.Revision = ^uint32(0)
		if err := p.objects.Policies.Put(uint32(id), policy); err != nil {
			t.Fatal(err)
		}
	}
	wantVerdict(t, "SYN", p.fromClient(t, syn), deliver)
	wantVerdict(t, "SYN-ACK", p.fromServer(t, synACK), deliver)
	p.policy(t, "from", denyIngress)
	var policy abi.Policy
	if err := p.objects.Policies.Lookup(uint32(p.server.id), &policy); err != nil || policy.Revision > 9 {
		t.Errorf("revision %d, %v, want one of the first again", policy.Revision, err)
	}
	wantVerdict(t, "a request after the right was revoked", p.fromClient(t, ack), dropped)
	wantVerdict(t, "a reply after it was revoked", p.fromServer(t, ack), dropped)
}

// TestPolicyLostEntries: a connection goes on without its entries, when only the one direction is allowed.
func TestPolicyLostEntries(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "isolate", isolate)
	p.policy(t, "to", toServer)
	p.policy(t, "from", fromClient)
	wantVerdict(t, "SYN", p.fromClient(t, syn), deliver)
	p.forgetConnections(t)
	wantVerdict(t, "a reply without entries", p.fromServer(t, ack), deliver)
	wantVerdict(t, "a request after it", p.fromClient(t, ack), deliver)
	p.forgetConnections(t)
	wantVerdict(t, "a request without entries", p.fromClient(t, ack), deliver)
	wantVerdict(t, "a reply after it", p.fromServer(t, ack), deliver)
	p.forgetConnections(t)
	wantVerdict(t, "a segment that neither direction allows", p.between(t, p.server, p.client, 5000, 5001, ack), dropped)
}

// TestPolicyThroughStack has the client reach the server by a Service: what arrives is from the client or, masqueraded,
// from the node.
func TestPolicyThroughStack(t *testing.T) {
	for name, source := range map[string]netip.Addr{"as the client": {}, "as the node": nodeIPv4} {
		t.Run(name, func(t *testing.T) {
			p := newPolicyFixture(t)
			if !source.IsValid() {
				source = p.client.ip4
			}
			down := func(flags func(*layers.TCP)) []byte {
				return segment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(source, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), flags)
			}
			arrives := func(flags func(*layers.TCP)) uint32 {
				return p.request(t, p.objects.ToPod, p.server, &p.client, down(flags))
			}
			p.policy(t, "isolate", isolate)
			wantVerdict(t, "denied egress", arrives(syn), dropped)
			p.wantDrops(t, p.server, abi.DropPolicyEgress, 1)
			p.policy(t, "to", toServer)
			wantVerdict(t, "denied ingress", arrives(syn), dropped)
			p.wantDrops(t, p.server, abi.DropPolicyIngress, 1)
			p.policy(t, "from", fromClient)
			wantVerdict(t, "allowed", arrives(syn), toStack)
			reply := segment(p.server.mac, p.server.hostMAC, netip.AddrPortFrom(p.server.ip4, serverPort), netip.AddrPortFrom(source, clientPort), synACK)
			verdict, _ := p.run(t, p.objects.FromPod, p.server, reply)
			wantVerdict(t, "the answer", verdict, toStack)
			wantVerdict(t, "the next", arrives(ack), toStack)
			p.remove(t, "to")
			wantVerdict(t, "after the client's right was revoked", arrives(ack), dropped)
			fromNode, _ := p.run(t, p.objects.ToPod, p.server, down(syn))
			if name == "as the node" {
				wantVerdict(t, "the node itself, with the same addresses and ports", fromNode, toStack)
			}
			outside := p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, down(syn))
			wantVerdict(t, "outside, under this address", outside, dropped)
		})
	}
}

// TestPolicyReplyToNode changes the policy of a pod that the node has opened a connection to, which it always may,
// while the pod alone sends.
func TestPolicyReplyToNode(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "deny", denyIngress)
	node, server := netip.AddrPortFrom(nodeIPv4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort)
	request, _ := p.run(t, p.objects.ToPod, p.server, segment(p.server.hostMAC, p.server.mac, node, server, syn))
	wantVerdict(t, "the node's request", request, toStack)
	for _, when := range []string{"the answer", "more of it"} {
		reply, _ := p.run(t, p.objects.FromPod, p.server, segment(p.server.mac, p.server.hostMAC, server, node, ack))
		wantVerdict(t, when, reply, toStack)
		p.policy(t, "from", fromClient)
	}
}

// TestPolicyReplyThroughStack has the server's reply to what reached it by a Service be none of its own requests.
func TestPolicyReplyThroughStack(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "isolate", isolate)
	p.policy(t, "from-outside", "{podSelector: {matchLabels: {app: server}}, ingress: [{from: [{ipBlock: {cidr: 198.51.100.0/24}}]}]}")
	request := segment(p.server.hostMAC, p.server.mac, netip.AddrPortFrom(outsider, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort), syn)
	verdict := p.runFrom(t, p.objects.ToPod, p.server, skBuff{IngressIfindex: uint32(p.uplink.index)}, request)
	wantVerdict(t, "a request from outside", verdict, toStack)
	reply := segment(p.server.mac, p.server.hostMAC, netip.AddrPortFrom(p.server.ip4, serverPort), netip.AddrPortFrom(outsider, clientPort), synACK)
	verdict, _ = p.run(t, p.objects.FromPod, p.server, reply)
	wantVerdict(t, "the reply", verdict, toStack)
	verdict, _ = p.run(t, p.objects.ToUplink, p.uplink, reply)
	wantVerdict(t, "the reply at the uplink", verdict, toNext)
	own := segment(p.server.mac, p.server.hostMAC, netip.AddrPortFrom(p.server.ip4, 5000), netip.AddrPortFrom(outsider, clientPort), syn)
	wantVerdict(t, "a request of its own at the uplink", p.request(t, p.objects.ToUplink, p.uplink, &p.server, own), dropped)
	p.wantDrops(t, p.server, abi.DropPolicyEgress, 1)
}

// TestPolicyFragments: the first fragment decides. It has the ports; without it no receiver can put the others
// together.
func TestPolicyFragments(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "to", toServer)
	fragment := func(port uint16, offset uint16) []byte {
		ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, Flags: layers.IPv4MoreFragments, FragOffset: offset,
			SrcIP: p.client.ip4.AsSlice(), DstIP: p.server.ip4.AsSlice()}
		tcp := make([]byte, 24)
		tcp[0], tcp[1], tcp[2], tcp[3], tcp[12], tcp[13] = clientPort>>8, clientPort&0xff, byte(port>>8), byte(port), 0x50, 2
		return frame(ether(p.server.hostMAC, p.server.mac, layers.EthernetTypeIPv4), ip, gopacket.Payload(tcp))
	}
	for _, prog := range []*ebpf.Program{p.objects.ToPod, p.objects.ToUplink} {
		link := p.server
		pass := uint32(toStack)
		if prog == p.objects.ToUplink {
			link, pass = p.uplink, toNext
		}
		wantVerdict(t, "first fragment, allowed port", p.request(t, prog, link, &p.client, fragment(serverPort, 0)), pass)
		wantVerdict(t, "first fragment, denied port", p.request(t, prog, link, &p.client, fragment(22, 0)), dropped)
		wantVerdict(t, "later fragment", p.request(t, prog, link, &p.client, fragment(22, 3)), pass)
		p.forgetConnections(t)
	}
}

// fragmentOf returns the first fragment of a datagram between two ports 80 of pods, or a later one.
func fragmentOf(from, to party, protocol layers.IPProtocol, first bool) []byte {
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: protocol, Flags: layers.IPv4MoreFragments, SrcIP: from.ip4.AsSlice(), DstIP: to.ip4.AsSlice()}
	if !first {
		ip.FragOffset = 3
	}
	return frame(ether(from.mac, from.hostMAC, layers.EthernetTypeIPv4), ip, gopacket.Payload{0, 80, 0, 80, 0, 48, 23: 0})
}

// TestPolicyLaterFragments: a later fragment passes if policy allows any port of its protocol, or after the first one
// of an answer.
func TestPolicyLaterFragments(t *testing.T) {
	later := func(from, to party, protocol layers.IPProtocol) []byte { return fragmentOf(from, to, protocol, false) }
	toPod := func(p *policyFixture, from, to party, frame []byte) uint32 {
		return p.request(t, p.objects.ToPod, to, &from, frame)
	}
	t.Run("ingress", func(t *testing.T) {
		p := newPolicyFixture(t)
		p.policy(t, "deny", denyIngress)
		wantVerdict(t, "nothing is allowed", toPod(p, p.client, p.server, later(p.client, p.server, layers.IPProtocolTCP)), dropped)
		p.wantDrops(t, p.server, abi.DropPolicyIngress, 1)
		wantVerdict(t, "to another pod", toPod(p, p.server, p.client, later(p.server, p.client, layers.IPProtocolTCP)), toStack)
		p.policy(t, "from", fromClient)
		wantVerdict(t, "a port of TCP is allowed", toPod(p, p.client, p.server, later(p.client, p.server, layers.IPProtocolTCP)), toStack)
		wantVerdict(t, "none of UDP is", toPod(p, p.client, p.server, later(p.client, p.server, layers.IPProtocolUDP)), dropped)
		wantVerdict(t, "ICMP is not", toPod(p, p.client, p.server, later(p.client, p.server, layers.IPProtocolICMPv4)), dropped)
	})
	t.Run("egress", func(t *testing.T) {
		p := newPolicyFixture(t)
		p.policy(t, "to", toServer)
		for _, one := range []struct {
			protocol layers.IPProtocol
			want     uint32
		}{{layers.IPProtocolTCP, toNext}, {layers.IPProtocolUDP, dropped}} {
			got := p.request(t, p.objects.ToUplink, p.uplink, &p.client, later(p.client, p.server, one.protocol))
			wantVerdict(t, "to another node, "+one.protocol.String(), got, one.want)
		}
		wantVerdict(t, "to another pod, UDP", toPod(p, p.client, p.server, later(p.client, p.server, layers.IPProtocolUDP)), dropped)
		p.policy(t, "deny", denyEgress)
		p.remove(t, "to")
		wantVerdict(t, "nothing is allowed", toPod(p, p.client, p.server, later(p.client, p.server, layers.IPProtocolTCP)), dropped)
	})
	t.Run("answer", func(t *testing.T) {
		p := newPolicyFixture(t)
		p.policy(t, "deny", denyIngress)
		p.policy(t, "deny-out", "{podSelector: {matchLabels: {app: client}}, policyTypes: [Ingress, Egress], ingress: [{}]}")
		request := udpSegment(p.server.mac, p.server.hostMAC, netip.AddrPortFrom(p.server.ip4, 80), netip.AddrPortFrom(p.client.ip4, 80))
		verdict, _ := p.run(t, p.objects.FromPod, p.server, request)
		wantVerdict(t, "the request", verdict, deliver)
		at := skBuff{IngressIfindex: uint32(p.client.index)}
		answer := later(p.client, p.server, layers.IPProtocolUDP)
		wantVerdict(t, "a later fragment before the first", p.runFrom(t, p.requests[p.objects.ToPod], p.server, at, answer), dropped)
		wantVerdict(t, "the first one", p.runFrom(t, p.requests[p.objects.ToPod], p.server, at, fragmentOf(p.client, p.server, layers.IPProtocolUDP, true)), toStack)
		wantVerdict(t, "a later one", p.runFrom(t, p.requests[p.objects.ToPod], p.server, at, answer), toStack)
		wantVerdict(t, "one of TCP", p.runFrom(t, p.requests[p.objects.ToPod], p.server, at, later(p.client, p.server, layers.IPProtocolTCP)), dropped)
		p.policy(t, "no-answer", "{podSelector: {matchLabels: {app: server}}, policyTypes: [Ingress, Egress]}")
		wantVerdict(t, "a later one when policy has changed", p.runFrom(t, p.requests[p.objects.ToPod], p.server, at, answer), dropped)
	})
}

// TestPolicyChangeKeepsVerdict changes policies all the time, also by restarts, in ways that concern neither of two
// flows: one is allowed throughout, the other denied.
func TestPolicyChangeKeepsVerdict(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "isolate", isolate)
	p.policy(t, "to", toServer)
	p.policy(t, "from", fromClient)
	done := make(chan struct{})
	var ran sync.WaitGroup
	ran.Go(func() {
		defer close(done)
		for i := range 150 {
			p.policy(t, "more", fmt.Sprintf("{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/%d}}], ports: [{port: %d}]}]}", 20+i%12, 1000+i))
			if i%3 == 0 {
				p.remove(t, "more")
			}
			if i%10 == 0 {
				p.writer = p.newWriter()
			}
			p.apply(t, engine.Update{SetEndpoints: []model.Endpoint{{
				Key: "shop/remote", Kind: model.Pod, Namespace: "shop", Labels: map[string]string{"app": "other"}, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 1, byte(i)})},
			}}})
		}
	})
	allowed, denied := 0, 0
	for running := true; running && !t.Failed(); {
		select {
		case <-done:
			running = false
		default:
		}
		wantVerdict(t, "the allowed connection", p.fromClient(t, syn), deliver)
		wantVerdict(t, "its reply", p.fromServer(t, ack), deliver)
		wantVerdict(t, "the denied one", p.between(t, p.client, p.server, clientPort, 22, syn), dropped)
		if t.Failed() {
			t.Log(p.traffic(t, 1).Drops, p.traffic(t, 2).Drops, allowed)
		}
		allowed, denied = allowed+2, denied+1
	}
	ran.Wait()
	if allowed < 100 {
		t.Errorf("only %d packets were sent meanwhile", allowed+denied)
	}
}

// TestPolicyOutlivesAgent has the verdicts stay while no agent runs, and when the next one does not know a pod yet.
func TestPolicyOutlivesAgent(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "isolate", isolate)
	p.writer = p.newWriter()
	wantVerdict(t, "without an agent", p.fromClient(t, syn), dropped)
	restarted := engine.New(engine.Config{})
	change := restarted.Apply(engine.Update{})
	if err := p.writer.Apply(restarted, &change, nil); err != nil {
		t.Fatal(err)
	}
	wantVerdict(t, "with an agent that does not know the pods", p.fromClient(t, syn), dropped)
	p.e = restarted
	change = restarted.Apply(engine.Update{SetEndpoints: []model.Endpoint{
		{Key: "shop/client", Kind: model.Pod, Local: true, Namespace: "shop", Addresses: []netip.Addr{p.client.ip4}},
		{Key: "shop/server", Kind: model.Pod, Local: true, Namespace: "shop", Addresses: []netip.Addr{p.server.ip4}},
	}})
	if err := p.writer.Apply(restarted, &change, p.numbers); err != nil {
		t.Fatal(err)
	}
	wantVerdict(t, "with an agent that knows of no policy", p.fromClient(t, syn), deliver)
	if opening := (oracle.Connection{From: p.client.ip4, To: outsider, Protocol: model.TCP, Port: 1}); !restarted.Evaluate(opening.From, opening.To, opening.Protocol, opening.Port).Allowed {
		t.Error("the engine denies what no policy does")
	}
}

// TestPolicyReplyToNodeWithoutEntry has the entry of a connection that the node has opened be lost, and the pod speak
// first.
func TestPolicyReplyToNodeWithoutEntry(t *testing.T) {
	p := newPolicyFixture(t)
	p.policy(t, "deny", denyIngress)
	node, server := netip.AddrPortFrom(nodeIPv4, clientPort), netip.AddrPortFrom(p.server.ip4, serverPort)
	conversation{fixture: p.fixture}.addToConntrack(t, node, server, node)
	reply, _ := p.run(t, p.objects.FromPod, p.server, segment(p.server.mac, p.server.hostMAC, server, node, ack))
	wantVerdict(t, "a reply without an entry", reply, toStack)
}
