package e2e

import (
	"testing"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// TestReservationOutlivesAgent: with its token, and whether it ends or not; it is given to no container.
func TestReservationOutlivesAgent(t *testing.T) {
	r := newRig(t, "--ipam-pod-cidr=10.9.0.0/29")
	printer := decoded[v1.Reservation](r, "ipam", "reserve", "--permanent", "--owner", "printer", "10.9.0.2")
	move := decoded[v1.Reservation](r, "ipam", "reserve", "--owner", "move", "10.9.0.3")
	if !printer.Permanent || move.Permanent || move.Expires.IsZero() {
		t.Fatalf("reserved %+v and %+v", printer, move)
	}
	r.agent.Kill(t)
	r.agent.Start(t)
	if p := r.pod(); p.ipv4.String() != "10.9.0.4" {
		t.Errorf("a container got %s", p.ipv4)
	}
	usage, err := r.api.IPAM(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range usage.Allocations {
		if a.Owner == "printer" && !a.Permanent || a.Owner == "move" && (a.Permanent || a.Expires.Sub(move.Expires).Abs() > time.Second) {
			t.Errorf("after a restart: %+v", a)
		}
	}
	for addr, token := range map[string]string{"10.9.0.2": printer.Token, "10.9.0.3": move.Token} {
		if done := r.cli("ipam", "release", addr, "--token", token); done.code != 0 {
			t.Errorf("release %s: exit code %d: %s", addr, done.code, done.err)
		}
	}
	r.agent.Kill(t)
	r.agent.Start(t)
	if done := r.cli("ipam", "release", "10.9.0.2"); done.code != 3 {
		t.Errorf("after another restart: exit code %d: %s", done.code, done.err)
	}
}
