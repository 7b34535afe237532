package names

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/model"
)

var addrs = cmpopts.EquateComparable(netip.Addr{})

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

func address(text string, ttl time.Duration) dnsname.Address {
	return dnsname.Address{Addr: addr(text), TTL: ttl}
}

// use is the addresses that connections of endpoints use.
type use map[string]bool

func (u use) inUse(expired map[Use]bool) {
	for one := range expired {
		expired[one] = u[fmt.Sprintf("%d %s", one.Endpoint, one.Addr)]
	}
}

// newNames returns one without a shortest TTL, for which 10.0.0.0/8 is protected.
func newNames(t testing.TB, change func(*Config)) *Names {
	t.Helper()
	c := DefaultConfig()
	c.MinTTL = 0
	c.InUse = func(map[Use]bool) {}
	c.Protected = netip.MustParsePrefix("10.0.0.0/8").Contains
	if change != nil {
		change(&c)
	}
	return New(c)
}

func rules(t testing.TB, patterns ...string) *dnsname.Rules {
	t.Helper()
	var all []model.DNSRule
	for _, p := range patterns {
		all = append(all, model.DNSRule{Pattern: p})
	}
	compiled, err := dnsname.Compile(all)
	if err != nil {
		t.Fatal(err)
	}
	return compiled
}

// expectAddresses compares what the endpoint knows of the name.
func (n *Names) expectAddresses(t testing.TB, endpoint uint16, name string, want ...string) {
	t.Helper()
	var got []string
	for _, l := range n.List() {
		if l.Endpoint == endpoint && l.Name == name {
			for addr := range l.Addresses {
				got = append(got, addr.String())
			}
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("endpoint %d has %v for %s, want %v", endpoint, got, name, want)
	}
}

// sleepAndExpire lets time pass, and then expire what is to.
func (n *Names) sleepAndExpire(d time.Duration) {
	time.Sleep(d)
	n.Expire()
}

func TestLearnTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(t, func(c *Config) { c.MinTTL, c.MaxTTL = 30*time.Second, time.Hour })
		n.Learn(1, "a", []dnsname.Address{address("192.0.2.1", 0), address("192.0.2.2", time.Minute), address("2001:db8::1", 99*time.Hour)})
		n.sleepAndExpire(30*time.Second - 1)
		n.expectAddresses(t, 1, "a", "192.0.2.1", "192.0.2.2", "2001:db8::1")
		n.sleepAndExpire(1)
		n.expectAddresses(t, 1, "a", "192.0.2.2", "2001:db8::1")
		n.Learn(1, "a", []dnsname.Address{address("192.0.2.2", time.Second)})
		n.sleepAndExpire(20 * time.Second) // a shorter TTL does not shorten the earlier one
		n.expectAddresses(t, 1, "a", "192.0.2.2", "2001:db8::1")
		n.Learn(1, "a", []dnsname.Address{address("192.0.2.2", time.Minute)})
		n.sleepAndExpire(time.Minute - 1)
		n.expectAddresses(t, 1, "a", "192.0.2.2", "2001:db8::1")
		n.sleepAndExpire(time.Hour)
		if all := n.List(); len(all) != 0 || len(n.names) != 0 || len(n.endpoints) != 0 {
			t.Errorf("%v is left, want nothing", all)
		}
	})
}

func TestExpireKeepsUsedAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := use{"1 192.0.2.1": true}
		n := newNames(t, func(c *Config) { c.InUse = used.inUse })
		both := []dnsname.Address{address("192.0.2.1", time.Minute), address("192.0.2.2", time.Minute)}
		n.Learn(1, "a", both)
		n.Learn(2, "a", both)
		n.sleepAndExpire(time.Minute)
		n.expectAddresses(t, 1, "a", "192.0.2.1")
		n.expectAddresses(t, 2, "a")
		n.sleepAndExpire(time.Hour)
		n.expectAddresses(t, 1, "a", "192.0.2.1")
		n.Learn(1, "a", both[:1])
		clear(used)
		n.sleepAndExpire(time.Minute - 1)
		n.expectAddresses(t, 1, "a", "192.0.2.1")
		n.sleepAndExpire(1)
		n.expectAddresses(t, 1, "a")
	})
}

// TestExpireMeanwhile learns, and forgets, while Expire asks whether addresses are in use.
func TestExpireMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var meanwhile func()
		n := newNames(t, func(c *Config) {
			c.InUse = func(map[Use]bool) { meanwhile() }
		})
		one := []dnsname.Address{address("192.0.2.1", time.Second)}
		n.Learn(1, "a", one)
		meanwhile = func() { n.Learn(1, "a", one) }
		n.sleepAndExpire(time.Second)
		n.expectAddresses(t, 1, "a", "192.0.2.1")
		meanwhile = func() { n.RemoveEndpoint(1) }
		n.sleepAndExpire(time.Second)
		n.expectAddresses(t, 1, "a")
		n.Learn(1, "a", one)
		n.Learn(1, "b", one)
		n.RemoveEndpoint(1)
		n.Admit(1)
		if all := n.List(); len(all) != 0 {
			t.Errorf("%v is left of an endpoint that is gone", all)
		}
	})
}

func TestReserved(t *testing.T) {
	protected := netip.MustParsePrefix("10.0.0.0/8")
	n := newNames(t, func(c *Config) { c.Protected = func(a netip.Addr) bool { return protected.Contains(a) } })
	s := n.Select(rules(t, "*"))
	texts := []string{
		"10.1.2.3", "::ffff:10.1.2.3", "0.0.0.0", "::", "127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "ff02::1", "255.255.255.255",
		"::ffff:127.0.0.1",
	}
	for _, text := range texts {
		n.Learn(1, "a", []dnsname.Address{address(text, time.Hour)})
	}
	n.Learn(1, "a", []dnsname.Address{{}})
	if got := n.Counts().Protected; got != uint64(len(texts)+1) || len(s.Addresses()) != 0 {
		t.Errorf("%d addresses were protected, and %v learned, want %d and none", got, s.Addresses(), len(texts)+1)
	}
	n.Learn(1, "a", []dnsname.Address{address("10.1.2.3", time.Hour), address("::ffff:192.0.2.1", time.Hour), address("192.0.2.2", time.Hour)})
	n.expectAddresses(t, 1, "a", "192.0.2.1", "192.0.2.2")
	protected = netip.MustParsePrefix("192.0.2.2/32")
	was := n.Counts().Protected
	n.Expire()
	if got := n.Counts().Protected - was; got != 1 {
		t.Errorf("%d addresses were counted that are protected now, want 1", got)
	}
	n.expectAddresses(t, 1, "a", "192.0.2.1")
}

func TestNameLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		used := use{"1 192.0.2.1": true}
		n := newNames(t, func(c *Config) { c.NameLimit, c.InUse = 3, used.inUse })
		learn := func(texts ...string) {
			t.Helper()
			var all []dnsname.Address
			for _, text := range texts {
				all = append(all, address(text, time.Minute))
			}
			n.Learn(1, "a", all)
		}
		learn("192.0.2.1")
		n.sleepAndExpire(time.Minute) // only a connection keeps it now
		learn("192.0.2.2", "192.0.2.3")
		learn("192.0.2.2")
		learn("192.0.2.4")
		n.expectAddresses(t, 1, "a", "192.0.2.1", "192.0.2.2", "192.0.2.4")
		learn("192.0.2.5", "192.0.2.6")
		n.expectAddresses(t, 1, "a", "192.0.2.1", "192.0.2.5", "192.0.2.6")
		learn("192.0.2.5", "192.0.2.6", "192.0.2.7")
		n.expectAddresses(t, 1, "a", "192.0.2.5", "192.0.2.6", "192.0.2.7")
		if got, want := n.Counts(), (Counts{NameLimit: 4}); got != want {
			t.Errorf("counts are %+v, want %+v", got, want)
		}
		learn("192.0.2.11", "192.0.2.12", "192.0.2.12", "192.0.2.13", "192.0.2.14", "192.0.2.15")
		n.expectAddresses(t, 1, "a", "192.0.2.11", "192.0.2.12", "192.0.2.13")
		if got, want := n.Counts(), (Counts{NameLimit: 7, LeftOut: 2}); got != want {
			t.Errorf("counts are %+v, want %+v", got, want)
		}
	})
}

func TestEndpointLimit(t *testing.T) {
	n := newNames(t, func(c *Config) { c.EndpointLimit = 4 })
	for i := range 6 {
		n.Learn(1, fmt.Sprintf("n%d", i), []dnsname.Address{address(fmt.Sprintf("192.0.2.%d", i), time.Minute)})
	}
	n.Learn(2, "n0", []dnsname.Address{address("192.0.2.0", time.Minute)})
	var got []string
	for _, l := range n.List() {
		got = append(got, fmt.Sprintf("%d %s", l.Endpoint, l.Name))
	}
	if diff := cmp.Diff([]string{"1 n2", "1 n3", "1 n4", "1 n5", "2 n0"}, got); diff != "" {
		t.Errorf("what is kept (-want +got):\n%s", diff)
	}
	if got, want := n.Counts(), (Counts{EndpointLimit: 2}); got != want {
		t.Errorf("counts are %+v, want %+v", got, want)
	}
	n.RemoveEndpoint(2)
	n.Admit(2)
	if len(n.names) != 4 {
		t.Errorf("%d names are known, want 4", len(n.names))
	}
}

// TestEndpointLimitSameName drops the only address of a name for another one of it.
func TestEndpointLimitSameName(t *testing.T) {
	n := newNames(t, func(c *Config) { c.EndpointLimit = 1 })
	for _, text := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"} {
		n.Learn(1, "a", []dnsname.Address{address(text, time.Minute)})
		n.expectAddresses(t, 1, "a", text)
	}
	n.Learn(1, "b", []dnsname.Address{address("192.0.2.4", time.Minute), address("192.0.2.5", time.Minute)})
	n.expectAddresses(t, 1, "a")
	n.expectAddresses(t, 1, "b", "192.0.2.4")
	if got, want := n.Counts(), (Counts{EndpointLimit: 3, LeftOut: 1}); got != want || len(n.names) != 1 {
		t.Errorf("counts are %+v with %d names, want %+v with one", got, len(n.names), want)
	}
}

// answer has addresses with a TTL of a second.
func answer(texts ...string) (all []dnsname.Address) {
	for _, text := range texts {
		all = append(all, address(text, time.Second))
	}
	return all
}

// TestForget learns nothing for an endpoint that is gone, until its ID is another's.
func TestForget(t *testing.T) {
	n := newNames(t, nil)
	n.Learn(1, "www.example", answer("192.0.2.1"))
	n.RemoveEndpoint(1)
	n.Learn(1, "late.example", answer("192.0.2.2"))
	if n.Refresh(1, "late.example", answer("192.0.2.2")) {
		t.Error("an address of an endpoint that is gone was refreshed")
	}
	if known := n.List(); len(known) > 0 {
		t.Errorf("an endpoint that is gone has %+v", known)
	}
	n.Admit(1)
	n.Learn(1, "www.example", answer("192.0.2.3"))
	if known := n.List(); len(known) != 1 {
		t.Errorf("the next endpoint has %+v", known)
	}
}

// TestRefresh does for addresses that are known and in force what Learn does, and nothing for others.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(t, func(c *Config) { c.MinTTL = time.Minute })
		s := n.Select(rules(t, "*.example"))
		defer s.Close()
		revision := n.Learn(1, "www.example", answer("192.0.2.1"))
		if n.Refresh(1, "www.example", answer("192.0.2.1")) {
			t.Error("an address is in force before it was confirmed")
		}
		_, taken := n.Take()
		n.Confirm(max(revision, taken))
		for _, tt := range []struct {
			endpoint uint16
			name     string
			addrs    []dnsname.Address
			want     bool
		}{
			{1, "www.example", answer("192.0.2.1"), true},
			{1, "www.example", answer("::ffff:192.0.2.1"), true},
			{1, "www.example", answer("192.0.2.1", "192.0.2.2"), false},
			{1, "api.example", answer("192.0.2.1"), false},
			{2, "www.example", answer("192.0.2.1"), false},
		} {
			if got := n.Refresh(tt.endpoint, tt.name, tt.addrs); got != tt.want {
				t.Errorf("Refresh of %v of %s for %d: %v, want %v", tt.addrs, tt.name, tt.endpoint, got, tt.want)
			}
		}
		time.Sleep(time.Minute / 2)
		n.Refresh(1, "www.example", answer("192.0.2.1"))
		time.Sleep(time.Minute * 3 / 4)
		n.Expire()
		if got := s.Addresses(); len(got) != 1 {
			t.Errorf("an address that was refreshed has expired: %v", got)
		}
	})
}

// TestEvict takes addresses of names in selections from the endpoint with most, down to its part.
func TestEvict(t *testing.T) {
	n := newNames(t, nil)
	s := n.Select(rules(t, "*.b"))
	defer s.Close()
	n.Learn(1, "x.a", []dnsname.Address{address("192.0.2.1", time.Hour)})
	n.Learn(1, "x.b", []dnsname.Address{address("192.0.2.2", time.Hour), address("192.0.2.3", time.Hour), address("192.0.2.4", time.Hour)})
	n.Learn(2, "x.b", []dnsname.Address{address("192.0.2.5", time.Hour)})
	n.Evict(1, 4, 1)
	n.Evict(0, 0, 0)
	n.expectAddresses(t, 1, "x.b", "192.0.2.3", "192.0.2.4")
	n.Evict(9, 4, 1) // each has its part, two
	n.expectAddresses(t, 1, "x.b", "192.0.2.3", "192.0.2.4")
	n.Evict(9, 0, 1)
	n.expectAddresses(t, 1, "x.b", "192.0.2.4")
	n.expectAddresses(t, 1, "x.a", "192.0.2.1")
	n.expectAddresses(t, 2, "x.b", "192.0.2.5")
}
