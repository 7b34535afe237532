package chaos

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// pace is the time between two requests of a flow.
const pace = 10 * time.Millisecond

// traffic is requests by UDP at a fixed rate, and each wants its answer.
type traffic struct {
	flows []*flow
	done  chan struct{}
	group sync.WaitGroup
}

// flow is one client and one server, in one family.
type flow struct {
	name         string
	conn, server *net.UDPConn

	mu       sync.Mutex // guards the fields below
	sent     uint64
	answered map[uint64]bool
	errs     []error
}

// startTraffic sends between pods of one node, from node to node, and from a node to its pod, in both families.
func (w *world) startTraffic(t *testing.T) *traffic {
	t.Helper()
	first, second := w.hosts[0], w.hosts[1]
	a, b, c := first.live[0], first.live[1], second.live[0]
	tr := &traffic{done: make(chan struct{})}
	for _, f := range []struct {
		name     string
		from, to *testutil.Namespace
		addr     netip.Addr
	}{
		{"pod to pod", a.Namespace, b.Namespace, b.IPv4}, {"pod to pod", a.Namespace, b.Namespace, b.IPv6},
		{"node to node", a.Namespace, c.Namespace, c.IPv4}, {"node to node", a.Namespace, c.Namespace, c.IPv6},
		{"node to pod", second.node.Namespace, c.Namespace, c.IPv4}, {"node to pod", second.node.Namespace, c.Namespace, c.IPv6},
	} {
		tr.start(t, &flow{name: fmt.Sprintf("%s, %s", f.name, family(f.addr)), answered: map[uint64]bool{}}, f.from, f.to, f.addr)
	}
	return tr
}

func family(addr netip.Addr) string {
	if addr.Is4() {
		return "IPv4"
	}
	return "IPv6"
}

func (tr *traffic) start(t *testing.T, f *flow, from, to *testutil.Namespace, addr netip.Addr) {
	t.Helper()
	f.server = listen(t, to, addr)
	f.conn = dial(t, from, f.server)
	tr.flows = append(tr.flows, f)
	tr.group.Go(f.serve)
	tr.group.Go(f.listen)
	tr.group.Go(func() { f.ask(tr.done) })
}

// listen and dial open sockets that are closed at the end of the test, if not before.
func listen(t *testing.T, ns *testutil.Namespace, addr netip.Addr) (server *net.UDPConn) {
	t.Helper()
	err := ns.Do(func() (err error) {
		server, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	return server
}

func dial(t *testing.T, ns *testutil.Namespace, server *net.UDPConn) (conn *net.UDPConn) {
	t.Helper()
	err := ns.Do(func() (err error) {
		conn, err = net.DialUDP("udp", nil, server.LocalAddr().(*net.UDPAddr))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// serve answers until its socket is closed.
func (f *flow) serve() {
	buf := make([]byte, 64)
	for {
		n, from, err := f.server.ReadFromUDPAddrPort(buf)
		if err == nil {
			_, err = f.server.WriteToUDPAddrPort(buf[:n], from)
		}
		if err != nil {
			return
		}
	}
}

// ask sends one request after the other, whatever became of those before.
func (f *flow) ask(done <-chan struct{}) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		f.mu.Lock()
		f.sent++
		number := f.sent
		f.mu.Unlock()
		if _, err := f.conn.Write(binary.BigEndian.AppendUint64(nil, number)); err != nil {
			f.mu.Lock()
			f.errs = append(f.errs, err)
			f.mu.Unlock()
		}
	}
}

// listen notes the answers until its socket is closed.
func (f *flow) listen() {
	buf := make([]byte, 64)
	for {
		n, err := f.conn.Read(buf)
		if err != nil {
			return
		}
		if n == 8 {
			f.mu.Lock()
			f.answered[binary.BigEndian.Uint64(buf)] = true
			f.mu.Unlock()
		}
	}
}

func (f *flow) figures() (sent, lost uint64, errs []error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.sent, f.sent - uint64(len(f.answered)), f.errs
}

// stop asks no more, and waits for what is under way.
func (tr *traffic) stop() {
	close(tr.done)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline) && tr.missing() > 0; time.Sleep(pace) {
	}
	for _, f := range tr.flows {
		_ = f.conn.Close()
		_ = f.server.Close()
	}
	tr.group.Wait()
}

func (tr *traffic) missing() (sum uint64) {
	for _, f := range tr.flows {
		_, lost, _ := f.figures()
		sum += lost
	}
	return sum
}

func (tr *traffic) report(t *testing.T) {
	t.Helper()
	for _, f := range tr.flows {
		sent, lost, errs := f.figures()
		fmt.Printf("chaos: %s: %d packets sent, %d lost\n", f.name, sent, lost)
		if lost > 0 || len(errs) > 0 || sent == 0 {
			t.Errorf("%s: %d of %d packets lost; errors %v", f.name, lost, sent, errs[:min(len(errs), 3)])
		}
	}
}
