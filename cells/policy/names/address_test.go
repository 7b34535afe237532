package names

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/policy/dnsname"
)

func TestNamesOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(t, nil)
		shared := []dnsname.Address{address("192.0.2.1", time.Hour)}
		expect := func(limit int, want ...string) {
			t.Helper()
			if got := n.NamesOf(1, netip.MustParseAddr("::ffff:192.0.2.1"), limit); !slices.Equal(got, want) {
				t.Errorf("the names of 192.0.2.1 are %v, want %v", got, want)
			}
		}
		expect(3)
		for _, name := range []string{"a.example.com", "b.example.com", "c.example.com", "d.example.com"} {
			n.Learn(1, name, shared)
		}
		n.Learn(2, "other.example.com", shared)
		n.Learn(1, "e.example.com", []dnsname.Address{address("192.0.2.2", time.Hour)})
		expect(3, "d.example.com", "c.example.com", "b.example.com")
		n.Learn(1, "b.example.com", shared)
		expect(2, "b.example.com", "d.example.com")
		n.Learn(1, "f.example.com", []dnsname.Address{address("192.0.2.1", 2*time.Hour)})
		n.sleepAndExpire(time.Hour)
		expect(3, "f.example.com")
		n.RemoveEndpoint(1)
		n.Admit(1)
		expect(3)
	})
}
