package e2e

import (
	"bytes"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// rawTCP sends and gets segments of a pod's, past its own stack, which must not answer: see silence.
type rawTCP struct {
	*testing.T
	fd      int
	network gopacket.NetworkLayer
	server  netip.AddrPort
	to      unix.Sockaddr
}

// silence has a pod's own stack not reset connections that it does not know.
func silence(t *testing.T, p party) {
	t.Helper()
	testutil.NeedPrograms(t, "nft")
	rules := "add table inet t; add chain inet t out { type filter hook output priority 0; }; add rule inet t out tcp flags & rst == rst drop"
	if err := p.Do(exec.Command("nft", rules).Run); err != nil {
		t.Fatal(err)
	}
}

func newRawTCP(t *testing.T, from party, server netip.AddrPort) *rawTCP {
	t.Helper()
	x := &rawTCP{T: t, server: server}
	source, destination, family := from.addr(server.Addr().Is6()).AsSlice(), server.Addr().AsSlice(), unix.AF_INET
	if server.Addr().Is4() {
		x.network = &layers.IPv4{SrcIP: source, DstIP: destination, Protocol: layers.IPProtocolTCP}
		x.to = &unix.SockaddrInet4{Addr: server.Addr().As4()}
	} else {
		family = unix.AF_INET6
		x.network = &layers.IPv6{SrcIP: source, DstIP: destination, NextHeader: layers.IPProtocolTCP}
		x.to = &unix.SockaddrInet6{Addr: server.Addr().As16()}
	}
	err := from.Do(func() (err error) {
		x.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(x.fd) })
	if err := unix.SetsockoptTimeval(x.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		t.Fatal(err)
	}
	return x
}

// send reports whether there was room for the segment.
func (x *rawTCP) send(tcp layers.TCP, payload string) bool {
	x.Helper()
	tcp.DstPort, tcp.Window = layers.TCPPort(x.server.Port()), 64240
	if err := tcp.SetNetworkLayerForChecksum(x.network); err != nil {
		x.Fatal(err)
	}
	buffer := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buffer, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, &tcp, gopacket.Payload(payload)); err != nil {
		x.Fatal(err)
	}
	return unix.Sendto(x.fd, buffer.Bytes(), 0, x.to) == nil
}

// receive returns the next segment to a port.
func (x *rawTCP) receive(port layers.TCPPort) *layers.TCP {
	x.Helper()
	packet := make([]byte, 1<<16)
	for {
		n, _, err := unix.Recvfrom(x.fd, packet, 0)
		if err != nil {
			x.Fatalf("no answer to port %d: %v", port, err)
		}
		segment := packet[:n]
		if x.server.Addr().Is4() { // with the header, unlike IPv6
			segment = segment[int(segment[0]&0xf)*4:]
		}
		var tcp layers.TCP
		if err := tcp.DecodeFromBytes(bytes.Clone(segment), gopacket.NilDecodeFeedback); err != nil {
			x.Fatal(err)
		}
		if tcp.DstPort == port && tcp.SrcPort == layers.TCPPort(x.server.Port()) {
			return &tcp
		}
	}
}

// flood sends a SYN from each port, unless that takes longer than most, and returns how many were sent.
func (x *rawTCP) flood(ports int, most time.Duration) (sent int) {
	x.Helper()
	end := time.Now().Add(most)
	for port := 1; port < ports && time.Now().Before(end); port++ {
		if x.send(layers.TCP{SrcPort: layers.TCPPort(port), Seq: uint32(port) << 8, SYN: true}, "") {
			sent++
		}
	}
	return sent
}

const floodClient, floodClients = layers.TCPPort(20_000), 16

// TestProxyFloodHandshakes has a pod send SYNs from all its ports to a server for which it has layer 7 rules, while
// another pod's clients, which are far away, have not yet answered the proxy: their connections are opened all the
// same.
func TestProxyFloodHandshakes(t *testing.T) {
	n := floodedNodes(t)
	silence(t, n.c)
	for _, six := range []bool{false, true} {
		server := n.b.at(six, webPort)
		client := newRawTCP(t, n.c, server)
		next := map[layers.TCPPort]uint32{}
		for port := floodClient; port < floodClient+floodClients; port++ {
			client.send(layers.TCP{SrcPort: port, Seq: 1000, SYN: true}, "")
			next[port] = client.receive(port).Seq + 1
		}
		// Within a second: then the kernel sends its SYN-ACKs again, and closes a connection at once whose SYN-ACK finds no
		// room on a device (reqsk_timer_handler, tcp_rtx_synack). There must be more SYNs than the socket's queue takes,
		// 4,096.
		if sent := newRawTCP(t, n.a, server).flood(25_000, 700*time.Millisecond); sent < 6000 {
			t.Errorf("IPv6 %v: %d SYNs were sent, too few", six, sent)
		}
		for port, ack := range next {
			client.send(layers.TCP{SrcPort: port, Seq: 1001, Ack: ack, ACK: true}, "")
			client.send(layers.TCP{SrcPort: port, Seq: 1001, Ack: ack, ACK: true, PSH: true}, "GET /public/x HTTP/1.1\r\nHost: x\r\n\r\n")
			answer := client.receive(port)
			for !answer.RST && len(answer.Payload) == 0 {
				answer = client.receive(port)
			}
			if !bytes.HasPrefix(answer.Payload, []byte("HTTP/1.1 200")) {
				t.Errorf("IPv6 %v: port %d: reset %v, %q: want an answer", six, port, answer.RST, answer.Payload)
			}
		}
		if t.Failed() {
			for name, value := range n.one.metrics() {
				if value > 0 && (strings.HasPrefix(name, "porin_proxy_") || strings.Contains(name, "drop")) {
					t.Logf("%s %v", name, value)
				}
			}
			break
		}
	}
}

func floodedNodes(t *testing.T) *serviceNodes {
	t.Helper()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveWeb(t, n.b)
	n.ciliumPolicy("{endpointSelector: {}, ingress: [{" + publicOnly + "}], egress: [{" + publicOnly + "}]}")
	silence(t, n.a)
	return n
}

// TestProxyFlood is the same with requests of another pod all the while, by a connection that is open and by new ones.
func TestProxyFlood(t *testing.T) {
	n := floodedNodes(t)
	for _, six := range []bool{false, true} {
		server := n.b.at(six, webPort)
		flood := newRawTCP(t, n.a, server)
		flooded := make(chan struct{})
		var all sync.WaitGroup
		var mu sync.Mutex // guards the fields below
		requests, slowest := 0, time.Duration(0)
		request := func(client *http.Client) {
			began := time.Now()
			status, body, err := get(client, server, "/public/x")
			mu.Lock()
			defer mu.Unlock()
			requests, slowest = requests+1, max(slowest, time.Since(began))
			if err != nil || status != http.StatusOK {
				t.Errorf("IPv6 %v: %d %q, %v", six, status, body, err)
			}
		}
		for i := range 8 {
			client := webClient(t, n.c.Namespace, i == 0)
			all.Go(func() {
				for {
					request(client)
					select {
					case <-flooded:
						return
					default:
					}
				}
			})
		}
		sent := flood.flood(60_000, time.Minute)
		close(flooded)
		all.Wait()
		t.Logf("IPv6 %v: %d SYNs, %d requests of another pod meanwhile, the slowest took %v", six, sent, requests, slowest)
		if sent < 40_000 {
			t.Errorf("IPv6 %v: %d SYNs were sent, too few", six, sent)
		}
	}
}
