package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// serviceTraffic opens and closes connections of all kinds until it is ended.
type serviceTraffic struct {
	stop    chan struct{}
	running sync.WaitGroup
	mu      sync.Mutex // guards the fields below
	errors  []error
	opened  int
}

func (n *serviceNodes) startTraffic() *serviceTraffic {
	c := &serviceTraffic{stop: make(chan struct{})}
	for _, six := range []bool{false, true} {
		for _, protocol := range protocols {
			for _, to := range []netip.AddrPort{n.b.at(six, backendPort), n.at(local, six), n.nodePort(local, n.node1, six)} {
				c.running.Go(func() { c.client(n.a, protocol, to) })
			}
			c.running.Go(func() { c.client(n.b, protocol, n.at(local, six)) })
			c.running.Go(func() { c.client(n.d, protocol, n.at(local, six)) })
			c.running.Go(func() { c.refused(n.a, protocol, n.at(closed, six)) })
			c.running.Go(func() { c.refused(n.a, protocol, n.b.at(six, closedPort)) })
			c.running.Go(func() { c.client(n.outside, protocol, n.nodePort(localPolicy, n.node1, six)) })
		}
	}
	return c
}

func (c *serviceTraffic) client(from party, protocol string, to netip.AddrPort) {
	c.repeat(func() error {
		if err := connectAndAsk(from, protocol, to); err != nil {
			return fmt.Errorf("%s to %s by %s: %w", from.name, to, protocol, err)
		}
		return nil
	})
}

// refused connects to a port without a listener. The kernel sends only so many ICMP errors a second, so that a datagram
// is repeated.
func (c *serviceTraffic) refused(from party, protocol string, to netip.AddrPort) {
	c.repeat(func() error {
		conn, err := openDialog(from.Namespace, protocol, 0, to, answerTime)
		if err == nil {
			defer conn.Close()
		}
		for range 50 {
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				_, err = conn.askWithin("anybody", unreachable)
			}
		}
		if !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("%s to the closed %s by %s: %w", from.name, to, protocol, err)
		}
		return nil
	})
}

func (c *serviceTraffic) repeat(connect func() error) {
	for {
		select {
		case <-c.stop:
			return
		default:
		}
		err := connect()
		c.mu.Lock()
		c.opened++
		if err != nil {
			c.errors = append(c.errors, err)
		}
		c.mu.Unlock()
	}
}

func connectAndAsk(from party, protocol string, to netip.AddrPort) error {
	conn, err := openDialog(from.Namespace, protocol, 0, to, answerTime)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range 3 {
		if a, err := conn.ask(); err != nil {
			return err
		} else if a.server != "b" {
			return fmt.Errorf("%s answers", a.server)
		}
	}
	return nil
}

// end waits for the clients, and reports what went wrong.
func (c *serviceTraffic) end(t *testing.T) {
	t.Helper()
	close(c.stop)
	c.running.Wait()
	for i, err := range c.errors {
		if i == 10 {
			t.Errorf("and %d more", len(c.errors)-i)
			break
		}
		t.Error(err)
	}
	if c.opened < 100 {
		t.Errorf("%d connections, too few to show anything", c.opened)
	}
}

// TestServiceTrafficDuringLoss: entries are lost at any point of a connection.
func TestServiceTrafficDuringLoss(t *testing.T) {
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		traffic := n.startTraffic()
		for range 50 {
			n.loseAll()
			n.loseConnections(n.one.hostEnd(n.podA))
			n.loseConnections(n.one.hostEnd(n.podB))
		}
		traffic.end(t)
		n.nothingDropped("path-clash") // the last packet of a connection that is over makes an entry, and another may have its port
	})
}

// TestServiceTrafficDuringUpgrade: connections are opened at any point of an upgrade.
func TestServiceTrafficDuringUpgrade(t *testing.T) {
	forEachProxyMode(t, func(t *testing.T, mode proxyMode) {
		n := newServiceNodes(t, mode)
		traffic := n.startTraffic()
		for range 2 { // the longer it takes, the more often a port is used twice, by a Service and without: path-clash
			n.one.previousVersion()
			n.one.thisVersion()
		}
		traffic.end(t)
		n.nothingDropped("path-clash") // the connection has succeeded all the same
	})
}
