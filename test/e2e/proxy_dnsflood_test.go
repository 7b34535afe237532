package e2e

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
)

const floodDNSPort = 5054

// serveFlood answers each query over UDP with as many addresses as fit, each of them new.
func serveFlood(t *testing.T, p party, addresses int) {
	t.Helper()
	var socket net.PacketConn
	if err := p.Do(func() (err error) {
		socket, err = net.ListenPacket("udp", p.at(false, floodDNSPort).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, from, err := socket.ReadFrom(b)
			if err != nil {
				return
			}
			end := 12
			for end < n && b[end] != 0 {
				end += int(b[end]) + 1
			}
			end += 5
			m := append([]byte(nil), b[:end]...)
			m[2], m[3] = 0x84, 0
			binary.BigEndian.PutUint16(m[6:], uint16(addresses))
			clear(m[8:12])
			for range addresses {
				m = append(m, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 198, 18+byte(rand.IntN(2)), byte(rand.IntN(256)), byte(rand.IntN(256)))
			}
			_, _ = socket.WriteTo(m, from)
		}
	}()
	t.Cleanup(func() { socket.Close(); <-done })
}

// flood has queries under way all the time, until stop is closed.
func flood(t *testing.T, from party, server netip.AddrPort, atATime int, stop chan struct{}) (answers *atomic.Int64, ended chan struct{}) {
	t.Helper()
	var socket net.Conn
	if err := from.Do(func() (err error) { socket, err = net.Dial("udp", server.String()); return err }); err != nil {
		t.Fatal(err)
	}
	answers, ended = &atomic.Int64{}, make(chan struct{})
	send := func() {
		q := new(dns.Msg).SetQuestion("x.example.com.", dns.TypeA)
		q.SetEdns0(4096, false)
		text, _ := q.Pack()
		_, _ = socket.Write(text)
	}
	go func() {
		defer close(ended)
		b := make([]byte, 4096)
		for range atATime {
			send()
		}
		for {
			_ = socket.SetReadDeadline(time.Now().Add(time.Second))
			n, err := socket.Read(b)
			select {
			case <-stop:
				return
			default:
			}
			if err == nil && n > 300 {
				answers.Add(1)
			}
			send()
		}
	}()
	t.Cleanup(func() { socket.Close() })
	return answers, ended
}

// anyName lets the pods a and c ask for every name, and reach the addresses of some.
const anyName = `{endpointSelector: {matchExpressions: [{key: app, operator: In, values: [a, c]}]}, egress: [` +
	`{toPorts: [{ports: [{port: "5053", protocol: ANY}, {port: "5054", protocol: ANY}], rules: {dns: [{matchPattern: "*"}]}}]}, ` +
	`{toFQDNs: [{matchPattern: "*.example.com"}], toPorts: [{ports: [{port: "443"}]}]}]}`

// queriesOfC has c ask d for one name again and again. It returns how long the queries took, in order, and how many
// failed.
func (n *serviceNodes) queriesOfC(network string, port uint16, within time.Duration) (took []time.Duration, failed int) {
	for began := time.Now(); time.Since(began) < within; time.Sleep(10 * time.Millisecond) {
		at := time.Now()
		answer, err := n.c.resolveWithin(2*time.Second, network, n.d.at(false, port), "www.example.com.")
		if err != nil || answer.Rcode != dns.RcodeSuccess {
			failed++
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	return took, failed
}

func reportQueries(t *testing.T, what string, took []time.Duration, failed int) {
	t.Helper()
	t.Logf("%s: %d queries, %d failed, median %v, 99%% %v", what, len(took), failed, took[len(took)/2], took[len(took)*99/100])
}

// TestDNSFloodOfAddresses has one pod ask its own server, whose answers have new addresses each time, with as many
// queries at a time as a pod may have. Queries of another pod to another server, for a name that is known, go on.
func TestDNSFloodOfAddresses(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveNames(t, n.d)
	serveFlood(t, n.b, 240)
	n.ciliumPolicy(anyName)
	stop := make(chan struct{})
	answers, ended := flood(t, n.a, n.b.at(false, floodDNSPort), 250, stop)
	began := time.Now()
	udp, udpFailed := n.queriesOfC("udp", dnsPort, 3*time.Second)
	tcp, tcpFailed := n.queriesOfC("tcp", dnsPort, 3*time.Second)
	close(stop)
	<-ended
	reportQueries(t, "during the flood, udp", udp, udpFailed)
	reportQueries(t, "during the flood, tcp", tcp, tcpFailed)
	t.Logf("the hostile pod had %d answers in %v", answers.Load(), time.Since(began))
	// One thread reads the answers to all queries by UDP, and a goroutine for each those by TCP.
	if slow := udp[len(udp)/2] > 20*tcp[len(tcp)/2]; slow || udpFailed > 0 {
		t.Errorf("another pod's queries by UDP: %d failed, median %v where TCP has %v", udpFailed, udp[len(udp)/2], tcp[len(tcp)/2])
	}
}

// TestDNSFloodOfAddressesExternal is TestDNSFloodOfAddresses for porin-proxy, and for queries of the other pod whose
// answers have a new address each.
func TestDNSFloodOfAddressesExternal(t *testing.T) {
	n, _ := newExternal(t)
	serveNames(t, n.d)
	serveFlood(t, n.b, 240)
	serveFlood(t, n.d, 1)
	n.ciliumPolicy(anyName)
	for _, port := range []uint16{dnsPort, floodDNSPort} {
		took, failed := n.queriesOfC("udp", port, time.Second)
		reportQueries(t, "without the flood", took, failed)
	}
	stop := make(chan struct{})
	answers, ended := flood(t, n.a, n.b.at(false, floodDNSPort), 250, stop)
	known, knownFailed := n.queriesOfC("udp", dnsPort, 2*time.Second)
	other, otherFailed := n.queriesOfC("udp", floodDNSPort, 2*time.Second)
	close(stop)
	<-ended
	reportQueries(t, "during the flood, a known address", known, knownFailed)
	reportQueries(t, "during the flood, new addresses", other, otherFailed)
	t.Logf("the hostile pod had %d answers", answers.Load())
	if knownFailed > len(known)/50 || otherFailed > len(other)/50 {
		t.Errorf("another pod's queries: %d of %d for a known address failed, and %d of %d for new ones", knownFailed, len(known), otherFailed, len(other))
	}
}

// TestDNSFloodOfRefused has one pod send queries for a name that no rule allows, as fast as one thread can. Queries of
// another pod to another server are answered as before.
func TestDNSFloodOfRefused(t *testing.T) {
	n := newServiceNodes(t, nftablesMode{})
	n.label()
	serveNames(t, n.d)
	n.ciliumPolicy(`{endpointSelector: {matchExpressions: [{key: app, operator: In, values: [a, c]}]}, egress: [{` +
		`toPorts: [{ports: [{port: "5053", protocol: ANY}, {port: "5054", protocol: ANY}], rules: {dns: [{matchPattern: "*.example.com"}]}}]}]}`)
	took, failed := n.queriesOfC("udp", dnsPort, 1*time.Second)
	reportQueries(t, "without the flood, udp", took, failed)
	var socket net.Conn
	if err := n.a.Do(func() (err error) {
		socket, err = net.Dial("udp", n.b.at(false, floodDNSPort).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	q, _ := new(dns.Msg).SetQuestion("x.example.org.", dns.TypeA).Pack()
	stop, ended := make(chan struct{}), make(chan int)
	go func() {
		sent := 0
		for {
			select {
			case <-stop:
				ended <- sent
				return
			default:
			}
			if _, err := socket.Write(q); err == nil {
				sent++
			}
		}
	}()
	began := time.Now()
	udp, udpFailed := n.queriesOfC("udp", dnsPort, 3*time.Second)
	tcp, tcpFailed := n.queriesOfC("tcp", dnsPort, 1*time.Second)
	close(stop)
	sent := <-ended
	socket.Close()
	reportQueries(t, "during the flood, udp", udp, udpFailed)
	reportQueries(t, "during the flood, tcp", tcp, tcpFailed)
	t.Logf("the hostile pod has sent %d queries in a second", sent/int(time.Since(began)/time.Second))
	if udpFailed > len(udp)/100 {
		t.Errorf("another pod's queries by UDP: %d of %d failed", udpFailed, len(udp))
	}
}
