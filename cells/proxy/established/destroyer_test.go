package established

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/testutil"
)

// occupied returns the namespace of a pod with the addresses 192.0.2.1 and 2001:db8::1, in which a process is, and its cookie.
func occupied(t *testing.T) (*testutil.Namespace, uint64) {
	t.Helper()
	pod := testutil.NetNS(t)
	if err := pod.Do(exec.Command("sh", "-c", "ip link set lo up; ip addr add 192.0.2.1/32 dev lo; ip addr add 2001:db8::1/128 dev lo nodad").Run); err != nil {
		t.Fatal(err)
	}
	process := exec.Command("sleep", "60")
	if err := pod.Do(process.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	cookie, err := netns.Cookie(pod.FD())
	if err != nil {
		t.Fatal(err)
	}
	return pod, cookie
}

// TestClose closes the connections of a namespace that are affected, and leaves the others, and those of who keeps them.
func TestClose(t *testing.T) {
	pod, cookie := occupied(t)
	for address, by := range map[string]struct {
		mode   string
		effect policy.ConnectionEffect
	}{"192.0.2.1": {Close, policy.EffectGainsRules}, "2001:db8::1": {Keep, policy.EffectGainsRulesAtNode}} {
		affected, other := netip.AddrPortFrom(netip.MustParseAddr(address), 80), netip.AddrPortFrom(netip.MustParseAddr(address), 81)
		conns := map[netip.AddrPort]net.Conn{}
		for _, at := range []netip.AddrPort{affected, other} {
			pod.Listen(t, at)
			testutil.Eventually(t, func() (err error) { // the kernel adds the route of an address a moment later
				conns[at], err = pod.Dial(at, 5*time.Second)
				return err
			})
			defer conns[at].Close()
		}
		check := func(mode string, effect policy.ConnectionEffect, want bool) {
			t.Helper()
			destroyer := New(Config{OpenConnections: mode}, slog.New(slog.NewTextHandler(t.Output(), nil)))
			closing := destroyer.Begin([]policy.Local{{ID: 1, NetNSCookie: cookie}, {ID: 2, NetNSCookie: cookie + 1000}})
			defer closing.End()
			closing.Close(func(from, to netip.Addr, port uint16) policy.ConnectionEffect {
				if from == affected.Addr() && to == affected.Addr() && port == affected.Port() {
					return effect
				}
				return policy.EffectNone
			})
			for at, conn := range conns {
				if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
					t.Fatal(err)
				}
				_, err := conn.Read(make([]byte, 1))
				if closed := !errors.Is(err, os.ErrDeadlineExceeded); closed != (want && at == affected) {
					t.Errorf("%s: the connection to %s is closed: %v, %v", mode, at, closed, err)
				}
			}
		}
		check(Keep, policy.EffectGainsRules, false)
		check(by.mode, by.effect, true)
	}
}

// TestCloseOpenedMeanwhile closes only what was opened since the rules were not in force yet.
func TestCloseOpenedMeanwhile(t *testing.T) {
	pod, cookie := occupied(t)
	at := netip.MustParseAddrPort("192.0.2.1:80")
	pod.Listen(t, at)
	dial := func() net.Conn {
		t.Helper()
		conn, err := pod.Dial(at, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	before := dial()
	closing := New(DefaultConfig(), slog.New(slog.NewTextHandler(t.Output(), nil))).Begin([]policy.Local{{ID: 1, NetNSCookie: cookie}})
	defer closing.End()
	closing.Close(func(netip.Addr, netip.Addr, uint16) policy.ConnectionEffect { return policy.EffectNone })
	meanwhile := dial()
	closing.Close(func(netip.Addr, netip.Addr, uint16) policy.ConnectionEffect { return policy.EffectGainsRules })
	for conn, want := range map[net.Conn]bool{before: false, meanwhile: true} {
		if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) == want {
			t.Errorf("opened meanwhile: %v; %v, want it closed: %v", want, err, want)
		}
	}
}

// TestCloseConnecting has a connection go on that has no answer yet when the rules come, and closes it when it has got one before they are in force.
func TestCloseConnecting(t *testing.T) {
	pod, cookie := occupied(t)
	run := func(command string) {
		t.Helper()
		if out, err := exec.Command("nsenter", "--net="+pod.Path(), "sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run("ip route add 198.51.100.1/32 dev lo") // nobody answers
	at := netip.MustParseAddrPort("198.51.100.1:80")
	var conn net.Conn
	dialled := make(chan error, 1)
	go func() {
		var err error
		conn, err = pod.Dial(at, 10*time.Second)
		dialled <- err
	}()
	stateIs := func(want uint8) error {
		var all []socket
		if err := pod.Do(func() (err error) { all, err = list(); return err }); err != nil {
			return err
		}
		if !slices.ContainsFunc(all, func(s socket) bool { return s.remote == at && s.state == want }) {
			return fmt.Errorf("no socket to %s is in state %d: %v", at, want, all)
		}
		return nil
	}
	testutil.Eventually(t, func() error { return stateIs(synSent) })
	closing := New(DefaultConfig(), slog.New(slog.NewTextHandler(t.Output(), nil))).Begin([]policy.Local{{ID: 1, NetNSCookie: cookie}})
	defer closing.End()
	gains := func(netip.Addr, netip.Addr, uint16) policy.ConnectionEffect { return policy.EffectGainsRules }
	closing.Close(gains)
	if err := stateIs(synSent); err != nil {
		t.Fatal(err)
	}
	run("ip addr add 198.51.100.1/32 dev lo")
	pod.Listen(t, at)
	if err := <-dialled; err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	closing.Close(gains)
	if err := conn.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.ECONNRESET) { // the server's end may be the first
		t.Errorf("%v, want it closed", err)
	}
}

// TestCloseOwnConnections has a pod's own connections stay open when rules come for a range of its ports, in which the ports are that the kernel has chosen for them.
func TestCloseOwnConnections(t *testing.T) {
	pod, cookie := occupied(t)
	at := netip.MustParseAddrPort("192.0.2.1:81")
	pod.Listen(t, at)
	var conn net.Conn
	testutil.Eventually(t, func() (err error) { // the kernel adds the route of an address a moment later
		conn, err = pod.Dial(at, 5*time.Second)
		return err
	})
	defer conn.Close()
	closing := New(DefaultConfig(), slog.New(slog.NewTextHandler(t.Output(), nil))).Begin([]policy.Local{{ID: 1, NetNSCookie: cookie}})
	defer closing.End()
	closing.Close(func(_, _ netip.Addr, port uint16) policy.ConnectionEffect {
		if port >= 30000 {
			return policy.EffectGainsRules
		}
		return policy.EffectNone
	})
	if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v, want it open", err)
	}
}

// TestCloseBesideMany has a pod with more sockets than can be looked at within the time: another pod's connection is closed all the same.
func TestCloseBesideMany(t *testing.T) {
	many, cookieOfMany := occupied(t)
	pod, cookie := occupied(t)
	at := netip.MustParseAddrPort("192.0.2.1:80")
	conns := map[*testutil.Namespace]net.Conn{}
	for _, p := range []*testutil.Namespace{many, pod} {
		p.Listen(t, at)
		testutil.Eventually(t, func() (err error) { // the kernel adds the route of an address a moment later
			conns[p], err = p.Dial(at, 5*time.Second)
			return err
		})
		defer conns[p].Close()
	}
	closing := New(DefaultConfig(), slog.New(slog.NewTextHandler(t.Output(), nil))).Begin([]policy.Local{{ID: 1, NetNSCookie: cookieOfMany}, {ID: 2, NetNSCookie: cookie}})
	defer closing.End()
	first := true
	closing.Close(func(netip.Addr, netip.Addr, uint16) policy.ConnectionEffect {
		if first { // uses up more than its half of the second
			first = false
			time.Sleep(timeout * 6 / 10)
		}
		return policy.EffectGainsRules
	})
	for _, conn := range conns { // also the rest of the first one's, with the time that the second one leaves
		if err := conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%v, want it closed", err)
		}
	}
}

// TestCloseBusy closes the connection of a client that sends as fast as it can: its program gets an error, and the server a reset.
func TestCloseBusy(t *testing.T) {
	pod := testutil.NetNS(t)
	at := netip.MustParseAddrPort("192.0.2.1:80")
	if err := pod.Do(exec.Command("sh", "-c", "ip link set lo up; ip addr add 192.0.2.1/32 dev lo").Run); err != nil {
		t.Fatal(err)
	}
	received := make(chan error, 1)
	sending := make(chan struct{})
	listener := pod.Listen(t, at)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			received <- err
			return
		}
		defer conn.Close()
		if _, err = io.CopyN(io.Discard, conn, 1<<20); err == nil {
			close(sending)
			_, err = io.Copy(io.Discard, conn)
		}
		received <- err
	}()
	conn, err := pod.Dial(at, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	sent := make(chan error, 1)
	go func() {
		for {
			if _, err := conn.Write(make([]byte, 1<<16)); err != nil {
				sent <- err
				return
			}
		}
	}()
	select {
	case <-sending:
	case err := <-received:
		t.Fatal(err)
	}
	client := netip.MustParseAddrPort(conn.LocalAddr().String())
	if n, err := closeIn(t.Context(), pod.FD(), func(s socket, _ origin) bool { return s.local == client }); n != 1 || err != nil {
		t.Errorf("%d sockets closed, %v: want the client's", n, err)
	}
	for what, end := range map[string]chan error{"the client": sent, "the server": received} {
		select {
		case err := <-end:
			if !errors.Is(err, unix.ECONNABORTED) && !errors.Is(err, unix.ECONNRESET) {
				t.Errorf("%s got %v, want an error of the connection", what, err)
			}
		case <-time.After(5 * time.Second):
			t.Errorf("%s has not noticed", what)
		}
	}
}

// TestProbe finds out up front whether connections can be closed, and tells.
func TestProbe(t *testing.T) {
	if err := testutil.NetNS(t).Do(probe); err != nil {
		t.Errorf("this kernel: %v", err)
	}
	destroyer := New(DefaultConfig(), slog.New(slog.NewTextHandler(t.Output(), nil)))
	var status v1.Status
	destroyer.Report(&status)
	if status.Proxy.OpenConnections != "" {
		t.Errorf("status %q before anything is known", status.Proxy.OpenConnections)
	}
	destroyer.noteUnsupported(errUnsupported)
	destroyer.Report(&status)
	if status.Proxy.OpenConnections != errUnsupported.Error() {
		t.Errorf("status %q, want %q", status.Proxy.OpenConnections, errUnsupported)
	}
}

func TestConfig(t *testing.T) {
	for mode, valid := range map[string]bool{Close: true, Keep: true, "": false, "reset": false} {
		if err := (Config{OpenConnections: mode}).Validate(); (err == nil) != valid {
			t.Errorf("%q: %v", mode, err)
		}
	}
}
