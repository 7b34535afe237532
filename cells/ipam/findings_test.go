package ipam_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
)

var (
	_ doctor.Counter = (*ipam.Checker)(nil)

	other = netip.MustParseAddr("10.0.0.6")
)

// wantKinds checks that there is one finding of each kind, in the order of their subjects.
func wantKinds(t *testing.T, findings []doctor.Finding, want ...string) {
	t.Helper()
	var got []string
	for _, f := range findings {
		got = append(got, f.Kind+": "+f.Subject)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%+v", diff, findings)
	}
}

func TestIPAMCheckNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := begin(t, dir)
		l.start(t)
		l.add(t, "c1:eth0")
		if err := l.foreign(t, "x:eth0", "192.0.2.7"); err != nil { // another IPAM's
			t.Fatal(err)
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		again := beginWith(t, dir, "10.9.0.0/29")
		again.start(t)
		findings := again.examine(t, "")
		wantKinds(t, findings, "address-outside: 10.0.0.2 of endpoint 1")
		for _, kind := range again.checker(nil).Kinds() {
			if kind.Name == "address-outside" && (!kind.Note || findings[0].Repair != nil) {
				t.Errorf("kind %+v", kind)
			}
		}
	})
}

// TestReservationsAreNoted: also one whose addresses an endpoint uses, which is nothing else that is found. An address
// of an endpoint alone is not noted.
func TestReservationsAreNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, t.TempDir())
		l.start(t)
		l.add(t, "c1:eth0")
		for _, owner := range []allocator.Handle{"db", "printer"} {
			got, err := allocator.NewSource(l.addresses, nil).Reserve(t.Context(), allocator.Request{Owner: owner}, allocator.Permanent)
			if err == nil && owner == "db" {
				_, err = l.withReservation(t, "c2:eth0", got.Token)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := allocator.NewSource(l.addresses, nil).Reserve(t.Context(), allocator.Request{Owner: "move"}, time.Minute); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range l.examine(t, "") {
			if f.Kind != "address-reserved" || f.Repair != nil {
				t.Errorf("found %+v", f)
			}
			got = append(got, f.Subject+": "+f.Detail)
		}
		want := []string{
			"[10.0.0.3] by db: permanently, in pool default",
			"[10.0.0.4] by printer: permanently, in pool default",
			"[10.0.0.5] by move: until 2000-01-01 00:01:00Z, in pool default",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}
