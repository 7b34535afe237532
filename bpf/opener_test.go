package bpf_test

import (
	"fmt"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
)

// TestGuessedOpenerSYN: a segment without an entry passes as an answer, and the SYN that follows with the same ports is
// decided by itself, on a node without conntrack too.
func TestGuessedOpenerSYN(t *testing.T) {
	f := newRemoteFixture(t)
	f.eachKind(t, func(t *testing.T) {
		if f.udp {
			return
		}
		byStack := func(flags func(*layers.TCP)) uint32 {
			t.Helper()
			a, c := f.ends()
			frame := f.conversation().frame(f.alice.hostMAC, f.alice.mac, c, a, flags)
			return f.runFrom(t, f.objects.ToPod, f.alice, skBuff{IngressIfindex: uint32(f.eve.index)}, frame)
		}
		f.restrict(t, open, denied)
		f.forgetConnections(t)
		got, _ := f.in(t, f.eve, ack)
		wantVerdict(t, "a segment by the direct path", got, deliver)
		if got, _ := f.in(t, f.eve, syn); got == deliver || got != dropped && byStack(syn) != dropped {
			t.Errorf("a SYN after a segment by the direct path passes: %d", got)
		}
		f.forgetConnections(t)
		wantVerdict(t, "a segment by the stack", byStack(ack), toStack)
		wantVerdict(t, "a SYN after a segment by the stack", byStack(syn), dropped)

		f.restrict(t, denied, open)
		f.forgetConnections(t)
		got, _ = f.out(t, ack)
		wantVerdict(t, "a segment of the pod", got, deliver)
		got, _ = f.out(t, syn)
		wantVerdict(t, "the pod's SYN after it", got, dropped)
		f.restrict(t, open, open)
	})
}

// TestKnownOpenerSYN: a connection that the pod has opened gives the other side no right to open one with the same
// ports.
func TestKnownOpenerSYN(t *testing.T) {
	f := newRemoteFixture(t)
	f.eachKind(t, func(t *testing.T) {
		if f.udp {
			return
		}
		f.restrict(t, open, denied)
		_, _ = f.out(t, syn)
		_, _ = f.in(t, f.eve, synACK)
		a, c := f.ends()
		frame := f.conversation().frame(f.alice.hostMAC, f.alice.mac, c, a, syn)
		got := f.runFrom(t, f.objects.ToPod, f.alice, skBuff{IngressIfindex: uint32(f.eve.index)}, frame)
		wantVerdict(t, "a SYN of the other side", got, dropped)
		got, _ = f.in(t, f.eve, ack)
		wantVerdict(t, "an answer", got, deliver)
		f.restrict(t, open, open)
	})
}

// TestGuessedOpenerProxied: layer 7 rules come while a connection past the stack is open, and its entries are lost. No
// segment passes, whoever sends the first one.
func TestGuessedOpenerProxied(t *testing.T) {
	type segments struct {
		fromClient, fromServer func(flags func(*layers.TCP)) uint32
	}
	for name, set := range map[string]func(t *testing.T) (*policyFixture, segments){
		"pods of the node": func(t *testing.T) (*policyFixture, segments) {
			p := newPolicyFixture(t)
			p.proxyLink(t)
			send := func(by func(testing.TB, func(*layers.TCP)) uint32) func(func(*layers.TCP)) uint32 {
				return func(flags func(*layers.TCP)) uint32 { return by(t, flags) }
			}
			return p, segments{send(p.fromClient), send(p.fromServer)}
		},
		"server of another node": func(t *testing.T) (*policyFixture, segments) {
			p := newOtherNode(t)
			return p.policyFixture, segments{
				func(flags func(*layers.TCP)) uint32 { return p.out(t, flags) },
				func(flags func(*layers.TCP)) uint32 { return p.in(t, flags) },
			}
		},
	} {
		for _, serverFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, server first %t", name, serverFirst), func(t *testing.T) {
				p, s := set(t)
				wantVerdict(t, "SYN", s.fromClient(syn), deliver)
				wantVerdict(t, "SYN-ACK", s.fromServer(synACK), deliver)
				p.cilium(t, "get", getFromServer)
				p.forgetConnections(t)
				if serverFirst {
					wantVerdict(t, "the server's segment", s.fromServer(ack), dropped)
				}
				wantVerdict(t, "the client's segment", s.fromClient(ack), toStack)
			})
		}
	}
}

// TestResetMakesNoEntry: a reset without an entry says nothing about the segments that follow.
func TestResetMakesNoEntry(t *testing.T) {
	p := newPolicyFixture(t)
	wantVerdict(t, "a reset", p.fromClient(t, rst), deliver)
	if n := len(p.connections(t)); n != 0 {
		t.Errorf("a reset has made %d entries", n)
	}
}

// TestOpenerSeenLateByConntrack: carol has opened a connection past the stack, and conntrack has seen only a segment of
// the client. When the connection is to go through the proxy, the entry says who has opened it.
func TestOpenerSeenLateByConntrack(t *testing.T) {
	p := newOtherNode(t)
	to := p.policyFixture.client
	wantVerdict(t, "carol's SYN", p.in(t, syn), deliver)
	p.out(t, synACK)
	conversation{p.fixture, p.client, p.carol, false}.addToConntrack(t, p.client, p.carol, p.client)
	p.cilium(t, "get", ingressToClient)
	wantVerdict(t, "carol's segment", p.in(t, ack), toNext)
	byStack := p.runFrom(t, p.objects.ToPod, to, skBuff{IngressIfindex: uint32(p.uplink.index)}, segment(to.hostMAC, to.mac, p.carol, p.client, ack))
	wantVerdict(t, "the segment by the stack, to the proxy", byStack, deliver)
	p.wantDrops(t, to, abi.DropProxy, 0)
}
