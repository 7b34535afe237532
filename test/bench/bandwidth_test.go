package bench

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

const (
	limitedTime  = 5 * time.Second // of a measurement
	datagramSize = 1400
	mtu          = 1500
	tcpHeaders   = 20 + 12 // with time stamps
	udpHeader    = 8
	// tolerance is how far from the limit may be what arrives.
	tolerance = 0.05
)

// limit is what a system is told to keep.
type limit struct {
	direction string // "ingress" or "egress"
	rate      float64
}

func (l limit) config() map[string]any {
	return map[string]any{"bandwidth": map[string]any{l.direction + "Rate": uint64(l.rate), l.direction + "Burst": uint64(1<<32 - 1)}}
}

func (l limit) String() string { return fmt.Sprintf("%s limit of %g Mbit/s", l.direction, l.rate/1e6) }

// bandwidth measures the bytes that arrive between two containers of a node, one with a limit, with headers of IP and
// above, in shares of the limit. The reference plugin is told a burst of its own, as it takes what runtimes give for
// half a gigabyte.
func bandwidth(t *testing.T, r *report) {
	plugins := builtPlugins(t)
	for _, l := range []limit{
		{"ingress", 1e6}, {"egress", 1e6}, {"ingress", 1e7}, {"egress", 1e7}, {"ingress", 1e8}, {"egress", 1e8}, {"ingress", 1e9}, {"egress", 1e9},
	} {
		own := porinWith(t, testutil.NewNode(t), "porin", map[string]any{"runtimeConfig": l.config()}, "--ipam-pod-cidr=10.200.0.0/16,fd00:200::/64", "--ipam-quarantine=0s")
		systems := []*system{own}
		if l.rate >= 1e8 {
			systems = append(systems, ptpWithBandwidth(t, plugins, l))
		}
		for _, s := range systems {
			from, to := testutil.NewContainer(t), testutil.NewContainer(t)
			s.attach(t, from)
			for _, addr := range s.attach(t, to) {
				if l.rate < 1e8 && addr.Is6() {
					continue // a rate does not depend on the family: the others show it
				}
				for _, load := range loads {
					name := fmt.Sprintf("%s, %s, IPv%d", l, load.name, 4+2*addr.BitLen()/128)
					share := load.measure(t, from.Namespace, to.Namespace, addr, l.rate) / l.rate * load.withHeaders(addr)
					r.add(name, s.name, share, "of it")
					if s == own && l.rate <= load.most {
						r.atLeast(name, share, 1-tolerance, "")
					}
					if s == own {
						r.atMost(name, share, 1+tolerance, "")
					}
				}
			}
		}
	}
}

func ptpWithBandwidth(t *testing.T, plugins string, l limit) *system {
	t.Helper()
	node := testutil.NewNode(t)
	return newSystem(t, "ptp-bandwidth", node, plugins,
		map[string]any{"type": "ptp", "ipam": hostLocal(node)},
		map[string]any{"type": "bandwidth", l.direction + "Rate": uint64(l.rate), l.direction + "Burst": uint64(l.rate * 0.02)},
	)
}

// loads have the greatest limit that a process reaches with them on two CPUs.
var loads = []struct {
	name string
	most float64
	// withHeaders is what a packet has for each byte of its payload.
	withHeaders func(addr netip.Addr) float64
	measure     func(t *testing.T, from, to *testutil.Namespace, addr netip.Addr, rate float64) (bits float64)
}{
	{"one stream", 1e10, segments, func(t *testing.T, from, to *testutil.Namespace, addr netip.Addr, _ float64) float64 {
		return streamsGoodput(t, from, to, addr, 1)
	}},
	{"four streams", 1e10, segments, func(t *testing.T, from, to *testutil.Namespace, addr netip.Addr, _ float64) float64 {
		return streamsGoodput(t, from, to, addr, 4)
	}},
	{"datagrams", 1e8, datagrams, datagramsGoodput},
}

func segments(addr netip.Addr) float64 { return mtu / (mtu - ipHeader(addr) - tcpHeaders) }

func datagrams(addr netip.Addr) float64 { return 1 + (ipHeader(addr)+udpHeader)/datagramSize }

func ipHeader(addr netip.Addr) float64 {
	if addr.Is4() {
		return 20
	}
	return 40
}

// streamsGoodput is what arrives of so many TCP streams, in bits per second.
func streamsGoodput(t *testing.T, from, to *testutil.Namespace, addr netip.Addr, streams int) float64 {
	t.Helper()
	listener := to.Listen(t, netip.AddrPortFrom(addr, 0))
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).AddrPort().Port()
	var running sync.WaitGroup
	defer running.Wait()
	var arrived atomic.Int64
	var conns []net.Conn
	for range streams {
		conn, err := from.Dial(netip.AddrPortFrom(addr, port), testutil.Patience)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		end, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer end.Close()
		running.Go(func() { count(end, &arrived) })
		conns = append(conns, conn)
	}
	for _, conn := range conns { // when all are open, as none opens quickly beside a sending one
		running.Go(func() { _, _ = io.CopyBuffer(struct{ io.Writer }{conn}, zeros{}, make([]byte, 1<<17)) })
	}
	time.Sleep(limitedTime)
	return float64(arrived.Load()) * 8 / limitedTime.Seconds()
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

// count adds what arrives until the end of the connection.
func count(from io.Reader, arrived *atomic.Int64) {
	buf := make([]byte, 1<<20)
	for {
		n, err := from.Read(buf)
		arrived.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// datagramsGoodput is what arrives of datagrams that are sent at one and a half times the rate.
func datagramsGoodput(t *testing.T, from, to *testutil.Namespace, addr netip.Addr, rate float64) float64 {
	t.Helper()
	var receiver, sender *net.UDPConn
	err := to.Do(func() (err error) {
		receiver, err = net.ListenUDP("udp", &net.UDPAddr{IP: addr.AsSlice()})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer receiver.Close()
	_ = receiver.SetReadBuffer(4 << 20)
	err = from.Do(func() (err error) {
		sender, err = net.DialUDP("udp", nil, receiver.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var arrived atomic.Int64
	var counting sync.WaitGroup
	defer counting.Wait()
	defer sender.Close()
	defer receiver.Close()
	counting.Go(func() { count(receiver, &arrived) })
	datagram, began, sent := make([]byte, datagramSize), time.Now(), 0.0
	for time.Since(began) < limitedTime {
		if sent > 1.5*rate/8*time.Since(began).Seconds() {
			time.Sleep(time.Millisecond)
			continue
		}
		if _, err := sender.Write(datagram); err == nil {
			sent += datagramSize
		}
	}
	return float64(arrived.Load()) * 8 / limitedTime.Seconds()
}
