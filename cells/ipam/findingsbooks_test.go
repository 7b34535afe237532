package ipam_test

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/ipam"
)

var (
	_ doctor.Counter = (*ipam.Checker)(nil)

	mine  = netip.MustParseAddr("10.0.0.2") // that of c1:eth0
	other = netip.MustParseAddr("10.0.0.6")
)

// wantKinds checks that there is one finding of each kind, in the order of their subjects.
func wantKinds(t *testing.T, findings []doctor.Finding, want ...string) {
	t.Helper()
	var got []string
	for _, f := range findings {
		subject, _, _ := strings.Cut(f.Subject, ", allocation ") // which is another number each time
		got = append(got, f.Kind+": "+subject)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("findings (-want +got):\n%s\n%+v", diff, findings)
	}
}

func TestRecordsThatDifferAreFoundAndMended(t *testing.T) {
	rows := []struct {
		name  string
		do    func(l life)
		found []string
	}{
		{"an owner without an address", func(l life) {
			_ = l.addresses.Adopt(ipam.Allocation{Owner: "nobody", Pool: ipam.DefaultPool})
		}, []string{"owner-without-address: nobody"}},
		{"an address without an owner", func(l life) {
			_ = l.addresses.Adopt(ipam.Allocation{Owner: "lost", Pool: ipam.DefaultPool, Addresses: ipv4("10.0.0.6")})
			ipam.LoseOwner(l.addresses, "lost")
		}, []string{"address-without-owner: 10.0.0.6"}},
		{"an address in use that nobody has", func(l life) {
			_ = l.addresses.Adopt(ipam.Allocation{Owner: "lost", Pool: ipam.DefaultPool, Addresses: ipv4("10.0.0.6")})
			ipam.LoseAddress(l.addresses, other)
		}, []string{"address-without-owner: 10.0.0.6", "owner-without-address: lost"}},
		{"an endpoint's address that is free", func(l life) {
			ipam.Unmark(l.addresses, mine)
		}, []string{"address-not-marked: 10.0.0.2 of c1:eth0"}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := begin(t, t.TempDir())
				l.start(t)
				l.add(t, "c1:eth0")
				row.do(l)
				findings := l.examine(t, "")
				wantKinds(t, findings, row.found...)
				for range 2 { // the second time nothing is there to mend
					for _, f := range findings {
						if err := f.Repair(t.Context()); err != nil {
							t.Error(err)
						}
					}
				}
				l.wantHealthy(t)
				if got := l.addresses.Usage().Pools[0].Ranges[0].Used; got != 1 {
					t.Errorf("%d addresses are in use, want 1", got)
				}
			})
		})
	}
}

func TestAnAddressOfNoPrefixIsANote(t *testing.T) {
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
