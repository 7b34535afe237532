package names

import (
	"fmt"
	"maps"
	"math/rand/v2"
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
		n.Forget(1)
		n.Admit(1)
		expect(3)
	})
}

// TestNamesOfRandom compares the index with all leases, after random calls.
func TestNamesOfRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(3, 4))
		n := newNames(t, func(c *Config) { c.NameLimit, c.EndpointLimit = 3, 12 })
		for step := range 3000 {
			switch endpoint := uint16(r.IntN(3)); r.IntN(12) {
			case 0:
				n.Forget(endpoint)
				n.Admit(endpoint)
			case 1:
				n.sleepAndExpire(time.Duration(r.IntN(5)) * time.Second)
			default:
				n.Learn(endpoint, fmt.Sprintf("n%d.example.com", r.IntN(6)), []dnsname.Address{
					{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(6))}), TTL: time.Duration(r.IntN(10)) * time.Second},
				})
			}
			for id, e := range n.endpoints {
				want := map[netip.Addr][]*lease{}
				for _, l := range e.names {
					for addr, one := range l.leases {
						want[addr] = append(want[addr], one)
					}
				}
				if got := slices.Collect(maps.Keys(e.index)); len(got) != len(want) {
					t.Fatalf("step %d: endpoint %d has %d addresses in the index, want %d", step, id, len(got), len(want))
				}
				for addr, leases := range want {
					slices.SortFunc(leases, func(x, y *lease) int { return int(y.sequence) - int(x.sequence) })
					var names []string
					for _, l := range leases {
						names = append(names, l.lookup.name.text)
					}
					if got := n.NamesOf(id, addr, 100); !slices.Equal(got, names) {
						t.Fatalf("step %d: endpoint %d knows %s as %v, want %v", step, id, addr, got, names)
					}
				}
			}
		}
	})
}
