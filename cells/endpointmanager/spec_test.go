package endpointmanager

import (
	"net/netip"
	"testing"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/fault"
)

// TestCreatePoolOfStep: an endpoint keeps its pool over a restart, whatever the step would choose then. The Spec stays
// as the caller gave it.
func TestCreatePoolOfStep(t *testing.T) {
	dir, p, spec := t.TempDir(), &probe{pool: "red"}, specOf("c1:eth0")
	m := started(t, dir, p)
	first, err := m.Create(t.Context(), spec, nil)
	if err != nil || first.Pool != "red" || first.Spec.Pool != "" || ToV1(first).Pool != "red" {
		t.Fatalf("%+v, %v", first, err)
	}
	p.pool = "green"
	again, err := m.Create(t.Context(), spec, nil)
	if err != nil || !sameLife(again, first) {
		t.Errorf("the second time %+v, %v, want %+v", again, err, first)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m = started(t, dir, p)
	again, err = m.Create(t.Context(), spec, nil)
	if err != nil || !sameLife(again, first) {
		t.Errorf("after a restart %+v, %v, want %+v", again, err, first)
	}
	spec.Pool = "green"
	if other, err := m.Create(t.Context(), spec, nil); err != nil || other.ID == first.ID {
		t.Errorf("another pool asked for: %+v, %v", other, err)
	}
}

// sameLife reports whether a repeated ADD was answered with the endpoint that is there: only its start time is later.
func sameLife(again, first endpoint.Endpoint) bool {
	later := again.Spec.Began > first.Spec.Began
	again.Spec.Began, again.Renewed = first.Spec.Began, first.Renewed
	return later && again == first
}

// TestCreateRepeatedThenEarlierDelete has a DEL begin between an ADD and its repetition, and arrive after both.
func TestCreateRepeatedThenEarlierDelete(t *testing.T) {
	dir, spec := t.TempDir(), specOf("c1:eth0")
	m := started(t, dir, &probe{})
	spec.Began = 1000
	if _, err := m.Create(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	spec.Began = 3000
	if _, err := m.Create(t.Context(), spec, nil); err != nil {
		t.Fatal(err)
	}
	if result := m.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{Began: 2000}); result.Skipped != 1 {
		t.Errorf("DEL of before the repeated ADD: %+v, want it skipped", result)
	}
	if err := m.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	m = started(t, dir, &probe{})
	if result := m.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{Began: 2500}); result.Skipped != 1 {
		t.Errorf("after a restart: %+v, want it skipped", result)
	}
	if result := m.Delete(t.Context(), spec.Attachment, endpoint.DeleteConfig{Began: 3500}); result.Deleted != 1 {
		t.Errorf("DEL of after the repeated ADD: %+v", result)
	}
}

// TestCreateRepeatedOtherNamespace is a new life of the attachment.
func TestCreateRepeatedOtherNamespace(t *testing.T) {
	m, spec := started(t, t.TempDir(), &probe{}), specOf("c1:eth0")
	spec.NetNSCookie = 7
	first, err := m.Create(t.Context(), spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	spec.NetNSCookie = 8
	if second, err := m.Create(t.Context(), spec, nil); err != nil || second.ID == first.ID {
		t.Errorf("endpoint %d, %v, want another one than %d", second.ID, err, first.ID)
	}
}

func TestCreateReservationUnsupported(t *testing.T) {
	for name, spoil := range map[string]func(*endpoint.Spec){
		"with addresses of another IPAM": func(s *endpoint.Spec) {
			s.ExternalIPAM, s.Requested.IPv4 = true, netip.MustParseAddr("10.0.0.7")
		},
		"that is no token":    func(s *endpoint.Spec) { s.Reservation = "a\x00b" },
		"longer than a token": func(s *endpoint.Spec) { s.Reservation = string(make([]byte, 129)) },
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

// An IPAM plugin that can never be called is refused before the intent is on record.
func TestCreateBadIPAMType(t *testing.T) {
	p := &probe{}
	m := started(t, t.TempDir(), p)
	spec := specOf("c1:eth0")
	spec.ExternalIPAM, spec.IPAM = true, endpoint.IPAMPlugin{Type: "../host-local", Config: "{}"}
	if _, err := m.Create(t.Context(), spec, nil); fault.KindOf(err) != fault.Invalid {
		t.Errorf("error %v, want one of kind invalid", err)
	}
	if p.attached != 0 || len(m.table.List()) != 0 {
		t.Errorf("attached %d times, endpoints %v", p.attached, m.table.List())
	}
}
