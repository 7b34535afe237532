package e2e

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// TestPolicyLaterFragments sends later fragments alone, on a node whose kernel puts no datagrams together.
func TestPolicyLaterFragments(t *testing.T) {
	r := newRig(t, "--masquerade=none")
	sender, receiver := r.labelled("sender", "sender"), r.labelled("receiver", "receiver")
	at := r.wire(receiver)
	send := func(marker byte) (arrived int) {
		w := r.wire(sender)
		for i := range 10 {
			ip := ip4(sender.ipv4, receiver.ipv4, layers.IPProtocolUDP)
			ip.Id, ip.FragOffset = uint16(i), 100
			w.send(w.frame(w.eth(layers.EthernetTypeIPv4), ip, gopacket.Payload(bytes.Repeat([]byte{marker}, 1000))))
		}
		for until := time.Now().Add(time.Second); time.Now().Before(until); {
			n, _, err := unix.Recvfrom(at.fd, at.received, unix.MSG_DONTWAIT)
			if err != nil {
				time.Sleep(10 * time.Millisecond)
			} else if bytes.Contains(at.received[:n], bytes.Repeat([]byte{marker}, 20)) {
				arrived++
			}
		}
		return arrived
	}
	if n := send(0xA5); n != 10 {
		t.Fatalf("%d of 10 later fragments arrive without a policy", n)
	}
	r.applyPolicy(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: receiver, namespace: shop}
spec:
  podSelector: {matchLabels: {app: receiver}}
  policyTypes: [Ingress]
`)
	if n := send(0xA6); n != 0 {
		t.Errorf("%d of 10 later fragments arrive, and policy denies every port", n)
	}
}

// TestPolicyFragmentedAnswer: a pod that nothing may reach gets the fragments of what it has asked for.
func TestPolicyFragmentedAnswer(t *testing.T) {
	for _, masquerade := range []string{"none", "both"} {
		t.Run(masquerade, func(t *testing.T) {
			r := newRig(t, "--masquerade="+masquerade)
			client, server := r.labelled("client", "client"), r.labelled("server", "server")
			r.applyPolicy(`
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: client, namespace: shop}
spec:
  podSelector: {matchLabels: {app: client}}
  policyTypes: [Ingress]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server, namespace: shop}
spec:
  podSelector: {matchLabels: {app: server}}
  policyTypes: [Egress]
`)
			for _, addrs := range [][2]netip.Addr{{client.ipv4, server.ipv4}, {client.ipv6, server.ipv6}} {
				if err := echoDatagram(t, client.Namespace, server.Namespace, netip.AddrPortFrom(addrs[1], 9000), 4000); err != nil {
					t.Errorf("4000 bytes to %s and back: %v", addrs[1], err)
				}
			}
		})
	}
}

// echoDatagram sends a datagram of so many bytes to a server, which sends it back.
func echoDatagram(t *testing.T, client, server *testutil.Namespace, at netip.AddrPort, size int) error {
	t.Helper()
	var listener, conn *net.UDPConn
	err := server.Do(func() (err error) { listener, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(at)); return err })
	if err != nil {
		return err
	}
	defer listener.Close()
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			n, from, err := listener.ReadFromUDP(buffer)
			if err != nil {
				return
			}
			_, _ = listener.WriteToUDP(buffer[:n], from)
		}
	}()
	err = client.Do(func() (err error) { conn, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(at)); return err })
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(reach)); err != nil {
		return err
	}
	if _, err := conn.Write(make([]byte, size)); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, size))
	return err
}
