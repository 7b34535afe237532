package chaos

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/test/nodecheck"
)

// denied is a server that nothing may reach once there are policies. What arrives waits at its socket.
type denied struct {
	name   string
	server *net.UDPConn
	conn   *net.UDPConn // of the one who sends all the time; nil for a server that is for guests
	sent   atomic.Int64
}

// openDenied makes the servers that [traffic] sends to, and one a family on each node that the node's guests send to.
// There are no policies yet, and all packets arrive.
func (w *world) openDenied(t *testing.T) (all []*denied) {
	t.Helper()
	first, second := w.hosts[0], w.hosts[1]
	a, b, x, c := first.live[0], first.live[1], first.live[2], second.live[0]
	for _, d := range []struct {
		name       string
		from, to   *testutil.Namespace
		ipv4, ipv6 netip.Addr
	}{
		{"denied by ingress, pod to pod", x.Namespace, b.Namespace, b.IPv4, b.IPv6},
		{"denied by ingress, pod to a pod of another node", x.Namespace, c.Namespace, c.IPv4, c.IPv6},
		{"denied by ingress, another node to a pod", second.node.Namespace, b.Namespace, b.IPv4, b.IPv6},
		{"denied by egress, pod to pod", a.Namespace, x.Namespace, x.IPv4, x.IPv6},
		{"denied by egress, pod to another node", a.Namespace, second.node.Namespace, second.node.IPv4, second.node.IPv6},
	} {
		for _, addr := range []netip.Addr{d.ipv4, d.ipv6} {
			one := &denied{name: fmt.Sprintf("%s, %s", d.name, family(addr)), server: listen(t, d.to, addr)}
			one.conn = dial(t, d.from, one.server)
			one.prove(t)
			all = append(all, one)
		}
	}
	for _, h := range w.hosts {
		p := h.live[len(h.live)-1]
		for i, addr := range []netip.Addr{p.IPv4, p.IPv6} {
			h.noGuests[i] = &denied{name: fmt.Sprintf("denied, guests of %s, %s", h.node.Name, family(addr)), server: listen(t, p.Namespace, addr)}
			all = append(all, h.noGuests[i])
		}
	}
	return all
}

// prove checks that a packet arrives.
func (d *denied) prove(t *testing.T) {
	t.Helper()
	_, err1 := d.conn.Write([]byte("allowed"))
	_ = d.server.SetReadDeadline(time.Now().Add(patience))
	_, err2 := d.server.Read(make([]byte, 64))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatalf("%s: without policies: %v", d.name, err)
	}
}

// send sends something all the time, until it is told to stop.
func (d *denied) send(w *wrongs, stop <-chan struct{}) {
	for sleep(pace, stop) {
		if _, err := d.conn.Write([]byte("denied")); err != nil {
			w.add("answer to a denied packet", fmt.Sprintf("%s: %v", d.name, err))
			return
		}
		d.sent.Add(1)
	}
}

// sendAs sends the first packet of a guest.
func (d *denied) sendAs(guest nodecheck.Pod) error {
	return guest.Do(func() error {
		conn, err := net.DialUDP("udp", nil, d.server.LocalAddr().(*net.UDPAddr))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte("denied"))
		d.sent.Add(1)
		return err
	})
}

func (h *host) tryAsGuest(guest nodecheck.Pod, random *rand.Rand) {
	if err := h.noGuests[random.IntN(2)].sendAs(guest); err != nil {
		h.wrongs.add("answer to a denied packet", err.Error())
	}
}

// report fails the test when anything has arrived.
func (d *denied) report(t *testing.T) {
	t.Helper()
	arrived := 0
	for {
		_ = d.server.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := d.server.Read(make([]byte, 64)); errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		arrived++
	}
	sent := d.sent.Load()
	fmt.Printf("chaos: %s: %d packets sent, %d arrived\n", d.name, sent, arrived)
	if arrived > 0 || sent == 0 {
		t.Errorf("%s: %d of %d packets arrived", d.name, arrived, sent)
	}
}
