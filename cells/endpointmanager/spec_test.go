package endpointmanager

import (
	"net/netip"
	"testing"

	"porin.dev/porin/internal/fault"
)

// TestThePoolThatAStepChoseIsTheEndpoints for its life, over a restart, whatever the step would choose by then. What the
// caller asked for stays what it was.
func TestThePoolThatAStepChoseIsTheEndpoints(t *testing.T) {
	dir, p, spec := t.TempDir(), &probe{pool: "red"}, specOf("c1:eth0")
	m := started(t, dir, p)
	first, err := m.Create(t.Context(), spec)
	if err != nil || first.Pool != "red" || first.Spec.Pool != "" || ToV1(first).Pool != "red" {
		t.Fatalf("%+v, %v", first, err)
	}
	p.pool = "green"
	again, err := m.Create(t.Context(), spec)
	if err != nil || again != first {
		t.Errorf("the second time %+v, %v, want %+v", again, err, first)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m = started(t, dir, p)
	again, err = m.Create(t.Context(), spec)
	if err != nil || again != first {
		t.Errorf("after a restart %+v, %v, want %+v", again, err, first)
	}
	spec.Pool = "green"
	if other, err := m.Create(t.Context(), spec); err != nil || other.ID == first.ID {
		t.Errorf("another pool asked for: %+v, %v", other, err)
	}
}

func TestAReservationIsRefusedWhereItCannotBeTakenOver(t *testing.T) {
	for name, spoil := range map[string]func(*Spec){
		"with addresses of another IPAM": func(s *Spec) {
			s.ExternalIPAM, s.Requested.IPv4 = true, netip.MustParseAddr("10.0.0.7")
		},
		"that is no token":    func(s *Spec) { s.Reservation = "a\x00b" },
		"longer than a token": func(s *Spec) { s.Reservation = string(make([]byte, 129)) },
	} {
		spec := specOf("c1:eth0")
		spec.Reservation = "4UFXKSCNGRY3KIRXEYBGT6NQXC"
		if err := spec.Validate(); err != nil {
			t.Fatal(err)
		}
		if spoil(&spec); fault.KindOf(spec.Validate()) != fault.Invalid {
			t.Errorf("a reservation %s: %v", name, spec.Validate())
		}
	}
}
