package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"
)

// dnsPort is where pods serve DNS.
const dnsPort = 5053

// serveNames answers every query for addresses, by UDP and TCP, with the client's address as a text beside it.
// pod.example.com has the server's own address, and none.example.com none.
func serveNames(t *testing.T, p party) {
	t.Helper()
	serveNamesAt(t, p, dnsPort)
}

func serveNamesAt(t *testing.T, p party, port uint16) {
	t.Helper()
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		answer := new(dns.Msg).SetReply(query)
		name := query.Question[0].Name
		addr := net.IPv4(198, 51, 100, 9)
		if name == "pod.example.com." {
			addr = p.ipv4.AsSlice()
		}
		if name != "none.example.com." {
			header := dns.RR_Header{Name: name, Rrtype: dns.TypeA, Class: dns.ClassINET, Ttl: 60}
			answer.Answer = []dns.RR{&dns.A{Hdr: header, A: addr}}
		}
		answer.Extra = []dns.RR{&dns.TXT{Hdr: dns.RR_Header{Name: name, Rrtype: dns.TypeTXT, Class: dns.ClassINET}, Txt: []string{p.name, w.RemoteAddr().String()}}}
		_ = w.WriteMsg(answer)
	})
	for _, six := range []bool{false, true} {
		listener := p.Listen(t, p.at(six, port))
		var socket net.PacketConn
		err := p.Do(func() (err error) {
			socket, err = net.ListenPacket("udp", p.at(six, port).String())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, server := range []*dns.Server{{Listener: listener, Handler: handler}, {PacketConn: socket, Handler: handler}} {
			served := make(chan struct{})
			ready := make(chan struct{})
			server.NotifyStartedFunc = func() { close(ready) }
			go func() {
				defer close(served)
				_ = server.ActivateAndServe()
			}()
			<-ready
			t.Cleanup(func() {
				_ = server.Shutdown()
				<-served
			})
		}
	}
}

// resolve asks a server for a name.
func (p party) resolve(network string, server netip.AddrPort, name string) (*dns.Msg, error) {
	return p.resolveWithin(5*time.Second, network, server, name)
}

func (p party) resolveWithin(timeout time.Duration, network string, server netip.AddrPort, name string) (*dns.Msg, error) {
	var conn net.Conn
	err := p.Do(func() (err error) {
		conn, err = net.DialTimeout(network, server.String(), timeout)
		return err
	})
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	client := dns.Client{Net: network, Timeout: timeout}
	answer, _, err := client.ExchangeWithConn(new(dns.Msg).SetQuestion(name, dns.TypeA), &dns.Conn{Conn: conn})
	return answer, err
}

const exampleNames = `toPorts: [{ports: [{port: "5053", protocol: ANY}], rules: {dns: [{matchPattern: "*.example.com"}]}}]`

// TestDNSRules has rules for names, and servers on this node and on another one, directly and through Services.
func TestDNSRules(t *testing.T) {
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		n.label()
		for _, p := range []party{n.b, n.d} {
			serveNames(t, p)
		}
		n.forEachFamily(func(t *testing.T, six bool) {
			cases := []httpCase{
				{"a to b", n.a, n.b.at(six, dnsPort), "b", false},
				{"a to b by a Service", n.a, n.at(names, six), "b", false},
				{"a to the other node's pod", n.a, n.d.at(six, dnsPort), "d", false},
				{"a to the other node's pod by a Service", n.a, n.at(remoteNames, six), "d", false},
			}
			n.ciliumPolicy("{endpointSelector: {matchLabels: {app: a}}, egress: [{" + exampleNames + "}]}")
			checkDNS(t, six, cases)
		})
	})
}

func checkDNS(t *testing.T, six bool, cases []httpCase) {
	t.Helper()
	var all sync.WaitGroup
	for _, c := range cases {
		for _, network := range []string{"udp", "tcp"} {
			all.Go(func() {
				if err := c.checkName(network, six); err != nil {
					t.Errorf("%s by %s, IPv6 %v: %v", c.name, network, six, err)
				}
			})
		}
	}
	all.Wait()
}

// checkName expects an answer for a name that the rules allow, for which the server sees the client itself, and a
// refusal for another one.
func (c httpCase) checkName(network string, six bool) error {
	answer, err := c.from.resolve(network, c.to, "www.example.com.")
	for range 2 { // an emulated machine may take longer than 100 ms to learn an address: resolvers ask again. [serviceNodes.queries] asks once
		if err == nil && answer.Rcode == dns.RcodeServerFailure {
			answer, err = c.from.resolve(network, c.to, "www.example.com.")
		}
	}
	if err != nil || answer.Rcode != dns.RcodeSuccess || len(answer.Answer) != 1 || len(answer.Extra) != 1 {
		return fmt.Errorf("allowed name: %v, %w", answer, err)
	}
	text := answer.Extra[0].(*dns.TXT).Txt
	source, err := netip.ParseAddrPort(text[1])
	if err != nil || text[0] != c.server || source.Addr() != c.from.addr(six) || source.Port() < 61000 {
		return fmt.Errorf("%s has seen %s, want %s and the proxy's ports", text[0], text[1], c.from.addr(six))
	}
	answer, err = c.from.resolve(network, c.to, "www.example.org.")
	if err != nil || answer.Rcode != dns.RcodeNameError {
		return fmt.Errorf("denied name: %v, %w", answer, err)
	}
	return nil
}
