package bench

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

const (
	dnsRounds  = 10
	dnsQueries = 500 // of a round
	dnsPort    = 53
)

// dnsRule lets pods ask for names below example, and reach the addresses of these.
var dnsRule = map[string]any{
	"apiVersion": "cilium.io/v2", "kind": "CiliumClusterwideNetworkPolicy", "metadata": map[string]any{"name": "names"},
	"spec": map[string]any{
		"endpointSelector": map[string]any{},
		"egress": []any{
			map[string]any{"toPorts": []any{map[string]any{
				"ports": []any{map[string]any{"port": "53", "protocol": "UDP"}},
				"rules": map[string]any{"dns": []any{map[string]any{"matchPattern": "*.example"}}},
			}}},
			map[string]any{
				"toFQDNs": []any{map[string]any{"matchPattern": "*.example"}},
				"toPorts": []any{map[string]any{"ports": []any{map[string]any{"port": "443", "protocol": "TCP"}}}},
			},
		},
	},
}

// dnsPath is a way from a client to a server for names.
type dnsPath struct {
	name string
	from *testutil.Namespace
	to   netip.AddrPort
}

// dnsProxies measures a query and its answer through the proxy against none and a bare relay: for a name whose address
// is known, and for one with a new address, which is in the datapath before the answer is passed on.
func dnsProxies(t *testing.T, r *report) {
	plain, ruled := porin(t, "direct", "10.200.0.0/16,fd00:200::/64"), porin(t, "porin", "10.200.0.0/16,fd00:200::/64")
	from, to := relayed(t, "udp", dnsPort, serveNames)
	paths := []dnsPath{servedNames(t, plain), {"relay", from, to}, servedNames(t, ruled)}
	if err := ruled.agent.Do(http.MethodPut, "/v1/policy", dnsRule, nil); err != nil {
		t.Fatal(err)
	}
	known, fresh := newRounds("query p50", "us"), newRounds("query p50", "us")
	for range dnsRounds {
		for _, p := range paths {
			known.add(p.name, 1e3*percentile(p.queries(t, "known"), 0.5))
			fresh.add(p.name, 1e3*percentile(p.queries(t, "fresh"), 0.5))
		}
	}
	known.report(r, "known address", "direct")
	fresh.report(r, "new address", "direct")
	added := func(what string) float64 {
		return r.value("query p50, "+what, "porin") - r.value("query p50, "+what, "direct")
	}
	r.atMost("DNS query p50, known address, added", added("known address"), 150, "us")
	r.atMost("DNS query p50, new address, added", added("new address"), 1000, "us")
}

func servedNames(t *testing.T, s *system) dnsPath {
	t.Helper()
	p := attached(t, s)
	to := netip.AddrPortFrom(p.addr, dnsPort)
	serveNames(t, p.to, to)
	return dnsPath{s.name, p.from, to}
}

// queries asks one after the other, each from a port of its own, as resolvers do.
func (p dnsPath) queries(t *testing.T, name string) []time.Duration {
	query := append([]byte{0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, byte(len(name))}, name+"\x07example\x00\x00\x01\x00\x01"...)
	answer := make([]byte, 512)
	trips := make([]time.Duration, 0, dnsQueries)
	for i := range dnsQueries {
		var conn net.Conn
		err := p.from.Do(func() (err error) {
			conn, err = net.Dial("udp", p.to.String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		binary.BigEndian.PutUint16(query, uint16(i))
		began := time.Now()
		err = conn.SetDeadline(began.Add(time.Second))
		if err == nil {
			_, err = conn.Write(query)
		}
		n := 0
		if err == nil {
			n, err = conn.Read(answer)
		}
		trips = append(trips, time.Since(began))
		_ = conn.Close()
		if code := answer[3] & 0xf; err != nil || n < len(query) || code != 0 {
			t.Fatalf("%s: query for %s: %d bytes, code %d, %v", p.name, name, n, code, err)
		}
	}
	return trips
}

// serveNames answers a query for a name that begins with k with one address, and others with another one each time.
func serveNames(t *testing.T, ns *testutil.Namespace, addr netip.AddrPort) {
	t.Helper()
	var conn net.PacketConn
	err := ns.Do(func() (err error) {
		conn, err = net.ListenPacket("udp", addr.String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { conn.Close(); <-done })
	var last atomic.Uint32
	go func() {
		defer close(done)
		message := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(message)
			if err != nil {
				return
			}
			address := [4]byte{198, 18, 0, 1}
			if message[13] != 'k' {
				binary.BigEndian.PutUint32(address[:], 0xc6130000+last.Add(1))
			}
			message[2], message[3], message[7] = 0x81, 0x80, 1
			answer := fmt.Appendf(message[:n], "\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x3c\x00\x04%s", address[:])
			_, _ = conn.WriteTo(answer, from)
		}
	}()
}
