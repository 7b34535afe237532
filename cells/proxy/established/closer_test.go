package established

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"porin.dev/porin/cells/policy"
	"porin.dev/porin/internal/netns"
	"porin.dev/porin/internal/testutil"
)

// TestClose closes the connections of a namespace that are affected, and leaves the others, and those of who keeps them.
func TestClose(t *testing.T) {
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
	for address, by := range map[string]struct {
		mode   string
		effect policy.Effect
	}{"192.0.2.1": {Close, policy.Affected}, "2001:db8::1": {Keep, policy.AffectedToNode}} {
		affected, other := netip.AddrPortFrom(netip.MustParseAddr(address), 80), netip.AddrPortFrom(netip.MustParseAddr(address), 81)
		conns := map[netip.AddrPort]net.Conn{}
		for _, at := range []netip.AddrPort{affected, other} {
			pod.Listen(t, at)
			if conns[at], err = pod.Dial(at, 5*time.Second); err != nil {
				t.Fatal(err)
			}
			defer conns[at].Close()
		}
		check := func(mode string, effect policy.Effect, want bool) {
			t.Helper()
			closer := New(Config{OpenConnections: mode}, slog.New(slog.NewTextHandler(t.Output(), nil)))
			closer.Close([]policy.Local{{ID: 1, NetNSCookie: cookie}, {ID: 2, NetNSCookie: cookie + 1000}}, func(from, to netip.Addr, port uint16) policy.Effect {
				if from == affected.Addr() && to == affected.Addr() && port == affected.Port() {
					return effect
				}
				return policy.Unaffected
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
		check(Keep, policy.Affected, false)
		check(by.mode, by.effect, true)
	}
}

func TestConfig(t *testing.T) {
	for mode, valid := range map[string]bool{Close: true, Keep: true, "": false, "reset": false} {
		if err := (Config{OpenConnections: mode}).Validate(); (err == nil) != valid {
			t.Errorf("%q: %v", mode, err)
		}
	}
}
