package e2e

import (
	"encoding/binary"
	"net"
	"testing"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// TestDNSForgedErrors has a pod send ICMP errors about the queries of another one, which the proxy has sent, for all
// ports that they may have. Nobody but the server and the way to it may end a query.
func TestDNSForgedErrors(t *testing.T) {
	t.Parallel()
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	var socket net.PacketConn
	if err := n.d.Do(func() (err error) {
		socket, err = net.ListenPacket("udp", n.d.at(false, dnsPort).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	server := &dns.Server{PacketConn: socket, Handler: dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		time.Sleep(time.Second) // as a server that has to ask others
		_ = w.WriteMsg(new(dns.Msg).SetReply(query))
	})}
	go func() { defer close(done); _ = server.ActivateAndServe() }()
	t.Cleanup(func() { _ = server.Shutdown(); <-done })
	n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + exampleNames + "}]}")
	for name, attacker := range map[string]party{"pod of the node": n.c, "outside": n.outside} {
		ask := func() (time.Duration, int) {
			began := time.Now()
			answer, err := n.a.resolve("udp", n.d.at(false, dnsPort), "www.example.com.")
			if err != nil {
				return time.Since(began), -1
			}
			return time.Since(began), answer.Rcode
		}
		if took, code := ask(); code != dns.RcodeSuccess {
			t.Fatalf("without errors: code %d after %v", code, took)
		}
		var fd int
		if err := attacker.Do(func() (err error) {
			fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		sent := make(chan int)
		go func() {
			time.Sleep(300 * time.Millisecond)
			count := 0
			for port := 61000; port < 65536; port++ {
				m := make([]byte, 8+20+8)
				m[0], m[1] = 3, 3
				ip := m[8:28]
				ip[0], ip[8], ip[9] = 0x45, 64, unix.IPPROTO_UDP
				binary.BigEndian.PutUint16(ip[2:], 60)
				copy(ip[12:], n.a.ipv4.AsSlice())
				copy(ip[16:], n.d.ipv4.AsSlice())
				binary.BigEndian.PutUint16(ip[10:], testutil.Checksum(ip))
				udp := m[28:]
				binary.BigEndian.PutUint16(udp, uint16(port))
				binary.BigEndian.PutUint16(udp[2:], dnsPort)
				binary.BigEndian.PutUint16(udp[4:], 40)
				binary.BigEndian.PutUint16(m[2:], testutil.Checksum(m))
				if unix.Sendto(fd, m, 0, &unix.SockaddrInet4{Addr: n.a.ipv4.As4()}) == nil {
					count++
				}
			}
			sent <- count
		}()
		took, code := ask()
		t.Logf("%s: code %d after %v, of %d errors", name, code, took, <-sent)
		if code != dns.RcodeSuccess {
			t.Errorf("errors forged by a %s have ended the query of another pod: code %d after %v", name, code, took)
		}
		_ = unix.Close(fd)
	}
}
