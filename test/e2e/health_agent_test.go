package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// healthAddress is where the agents of these tests answer a kubelet, each in its own namespace.
const healthAddress = "127.0.0.1:9965"

// healthIs asks as a kubelet does, until both answers have the code and the line.
func (r *rig) healthIs(code int, line string) {
	r.Helper()
	for _, path := range []string{"/livez", "/readyz"} {
		testutil.Eventually(r, func() error {
			conn, err := r.node.Dial(netip.MustParseAddrPort(healthAddress), reach)
			if err != nil {
				return err
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.0\r\n\r\n"); err != nil {
				return err
			}
			answer, err := io.ReadAll(conn)
			header, body, _ := strings.Cut(string(answer), "\r\n\r\n")
			if err != nil || !strings.Contains(header, " "+strconv.Itoa(code)+" ") || !strings.Contains(body, line) {
				return fmt.Errorf("GET %s: %v, %s\n%s, want %d and %q", path, err, header, body, code, line)
			}
			return nil
		})
	}
}

func TestHealthLedgerLost(t *testing.T) {
	r := newRig(t, "--health-address="+healthAddress)
	r.healthIs(http.StatusOK, "endpointmanager: ok\n")
	ledger := filepath.Join(r.node.StateDir, "ledger.db")
	if err := os.Rename(ledger, ledger+".away"); err != nil {
		t.Fatal(err)
	}
	r.healthIs(http.StatusServiceUnavailable, "endpointmanager: failing: the ledger is lost: ")
	if out, err := r.porin("status"); err == nil || !strings.Contains(out, "Failing:") || !strings.Contains(out, "Ready:      no") {
		t.Errorf("porin status: %v\n%s", err, out)
	}
	if out, err := r.porin("doctor"); err == nil || !strings.Contains(out, "ledger-lost of endpointmanager") {
		t.Errorf("porin doctor: %v\n%s", err, out)
	}
	testutil.Eventually(t, func() error { // the sample of the resources may come first, or the doctor
		if log := r.agent.Log(); strings.Count(log, "level=ERROR msg=\"the ledger is lost") != 1 {
			return fmt.Errorf("want one error in the log:\n%s", log)
		}
		return nil
	})
	if err := os.Rename(ledger+".away", ledger); err != nil {
		t.Fatal(err)
	}
	r.healthIs(http.StatusOK, "endpointmanager: ok\n")
}

func TestHealthWithHeldEndpoints(t *testing.T) {
	testutil.Root(t)
	node := testutil.NewNode(t)
	r := rigOn(t, node, "--health-address="+healthAddress)
	for range 5 {
		r.pod()
	}
	r.agent.End()
	if err := os.Remove(filepath.Join(node.StateDir, "ledger.db")); err != nil {
		t.Fatal(err)
	}
	r.agent.Restart(t)
	r.healthIs(http.StatusOK, "endpointmanager: ok: 5 attachments are held")
}

// TestControllers has a loop run now, and lists what became of it.
func TestControllers(t *testing.T) {
	r := newRig(t, "--doctor-interval=1h")
	if out, err := r.porin("controller", "run", "doctor-examine"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	testutil.Eventually(t, func() error {
		for _, line := range r.lines("status", "--controllers") {
			if line[0] == "doctor-examine" && line[1] == "1" && line[2] == "0" {
				return nil
			}
		}
		return fmt.Errorf("doctor-examine has not run once: %v", r.lines("status", "--controllers"))
	})
	for _, name := range []string{"capacity-sample", "cni-heartbeat", "doctor-repair", "endpointmanager-deletion-records", "endpointmanager-expire", "ipam-clean-connections", "ipam-follow-node-addresses"} {
		found := false
		for _, line := range r.lines("status", "--controllers") {
			found = found || line[0] == name
		}
		if !found {
			t.Errorf("%s is not listed", name)
		}
	}
}
