package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"porin.dev/porin/internal/testutil"
)

// dhcpRig is one with the real dhcp, its daemon, and a DHCP server on the node.
type dhcpRig struct {
	*delegatedRig
	server *dhcpServer
}

func newDHCPRig(t *testing.T, lifetime time.Duration) *dhcpRig {
	t.Helper()
	r := &dhcpRig{delegatedRig: delegateTo(t, "dhcp")}
	r.server = startDHCPServer(t, r.node, lifetime)
	socket := filepath.Join(r.node.Dir, "dhcp.sock")
	r.daemon(socket)
	r.ipam = map[string]any{"type": "dhcp", "daemonSocketPath": socket}
	r.cni = r.runtime("porin", r.ipam)
	return r
}

// daemon starts the one that keeps the leases, on the node, until the end of the test.
func (r *dhcpRig) daemon(socket string) {
	r.Helper()
	var log bytes.Buffer
	cmd := exec.Command(filepath.Join(r.bin, "dhcp"), "daemon", "-socketpath", socket, "-timeout", "1s", "-resendtimeout", "5s")
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := r.node.Do(cmd.Start); err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if r.Failed() {
			r.Logf("log of the dhcp daemon:\n%s", log.String())
		}
	})
	testutil.Eventually(r, func() error {
		conn, err := net.Dial("unix", socket)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
}

func TestDHCP(t *testing.T) {
	t.Parallel()
	r := newDHCPRig(t, time.Hour)
	a, b := r.pod(), r.pod()
	for i, p := range []pod{a, b} {
		if want := fmt.Sprintf("10.202.0.%d", 10+i); p.ipv4.String() != want || p.ipv6.IsValid() {
			t.Errorf("addresses %s and %s, want %s alone", p.ipv4, p.ipv6, want)
		}
		if err := errors.Join(testutil.Ping(p.Namespace, r.node.IPv4, reach), r.cni.Check(p.Container)); err != nil {
			t.Error(err)
		}
	}
	if err := testutil.Ping(a.Namespace, b.ipv4, reach); err != nil {
		t.Error(err)
	}
	if err := errors.Join(r.cni.Status(), r.cni.GC(a.Container, b.Container)); err != nil {
		t.Error(err)
	}
	r.agrees()
	for n := 2; n < 12; n++ { // no message is lost on a link that has just come up
		r.cni.MustDel(t, r.pod().Container)
		if got := r.server.heard("discover"); got != n+1 {
			t.Fatalf("%d messages for %d containers", got, n+1)
		}
	}
	r.cni.MustDel(t, a.Container)
	r.cni.MustDel(t, a.Container)
	b.Close()
	r.cni.MustDel(t, b.Container)
	r.nothingLeft()
}

// TestDHCPNoAnswer: the ADD ends in its own time and leaves nothing, and the next one is as good as any.
func TestDHCPNoAnswer(t *testing.T) {
	t.Parallel()
	r := newDHCPRig(t, time.Hour)
	r.server.answers(false)
	hasty := r.node.NewCNI(t, testutil.CNIConfig{Bin: r.bin, Plugin: map[string]any{"ipam": r.ipam, "timeout": "4s"}})
	c := testutil.NewContainer(t)
	began := time.Now()
	_, err := hasty.Add(c)
	failedWith(t, err, "ADD by the IPAM plugin dhcp")
	failedAs(t, err, codeTryAgainLater)
	if took := time.Since(began); took > 8*time.Second {
		t.Errorf("it took %s", took)
	}
	if names := c.LinkNames(t); len(names) != 1 {
		t.Errorf("left in the container: %v", names)
	}
	r.nothingLeft()

	r.server.answers(true)
	p := r.add(c)
	if err := testutil.Ping(p.Namespace, r.node.IPv4, reach); err != nil {
		t.Error(err)
	}
	r.cni.MustDel(t, c)
	r.nothingLeft()
}

// TestDHCPDaemonUnavailable: ADD says so at once. What a DEL cannot give back is on record, and given back when the
// daemon is there.
func TestDHCPDaemonUnavailable(t *testing.T) {
	r := newDHCPRig(t, time.Hour)
	p := r.pod()
	r.cni = r.runtime("porin", map[string]any{"type": "dhcp", "daemonSocketPath": filepath.Join(r.node.Dir, "nobody.sock")})
	_, err := r.cni.Add(testutil.NewContainer(t))
	failedWith(t, err, "error dialing DHCP daemon")
	r.cni = r.runtime("porin", r.ipam)
	r.cni.MustDel(t, p.Container)
	for _, ep := range r.endpoints() {
		if ep.State != "disconnecting" || ep.Host.Index != 0 {
			t.Errorf("endpoint %+v", ep)
		}
	}
	if findings := r.examined().Findings; len(findings) != 1 || !strings.Contains(findings[0].Detail, "error dialing DHCP daemon") {
		t.Errorf("findings %+v", findings)
	}
}

// TestDHCPLeaseRenewal by the daemon, from inside the container: it takes the container's interface down when nobody answers
// until the lease ends.
func TestDHCPLeaseRenewal(t *testing.T) {
	t.Parallel()
	const lifetime = 4 * time.Second
	r := newDHCPRig(t, lifetime)
	p, began := r.pod(), time.Now()
	r.agent.Restart(t)
	testutil.Eventually(t, func() error {
		if n := r.server.heard("renew"); n < 3 || time.Since(began) < 3*lifetime/2 {
			return fmt.Errorf("%d renewals in %s", n, time.Since(began))
		}
		return nil
	})
	if err := testutil.Ping(p.Namespace, r.node.IPv4, reach); err != nil {
		t.Error(err)
	}
	if n := r.server.heard("discover"); n != 1 {
		t.Errorf("the lease was lost %d times", n-1)
	}
	r.agrees()
	r.cni.MustDel(t, p.Container)
	r.nothingLeft()
}
