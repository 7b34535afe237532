package names

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/policy/dnsname"
)

// expectChange takes, and compares what has changed in the one selection that there is.
func (n *Names) expectChange(t testing.TB, added, removed []string) (revision uint64) {
	t.Helper()
	changes, revision := n.Take()
	var c Change
	if len(changes) > 0 {
		c = changes[0]
	}
	texts := func(addrs []netip.Addr) (texts []string) {
		for _, a := range addrs {
			texts = append(texts, a.String())
		}
		return texts
	}
	if !slices.Equal(texts(c.Added), added) || !slices.Equal(texts(c.Removed), removed) || len(changes) > 1 {
		t.Errorf("%v has changed, want %v added and %v removed", changes, added, removed)
	}
	return revision
}

func TestSelection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(t, nil)
		n.Learn(1, "a.example.com", []dnsname.Address{address("192.0.2.1", time.Minute)})
		n.Learn(1, "example.net", []dnsname.Address{address("192.0.2.9", time.Minute)})
		s := n.Select(rules(t, "*.example.com"))
		n.expectChange(t, []string{"192.0.2.1"}, nil)
		n.Learn(2, "a.example.com", []dnsname.Address{address("192.0.2.1", time.Hour), address("192.0.2.2", time.Hour)})
		n.Learn(2, "b.example.com", []dnsname.Address{address("192.0.2.2", time.Minute), address("192.0.2.3", time.Minute)})
		n.Learn(2, "a.b.example.com", []dnsname.Address{address("192.0.2.4", time.Minute)})
		n.expectChange(t, []string{"192.0.2.2", "192.0.2.3"}, nil)
		n.sleepAndExpire(time.Minute)
		n.expectChange(t, nil, []string{"192.0.2.3"})
		n.Learn(3, "b.example.com", []dnsname.Address{address("192.0.2.5", time.Minute)})
		n.RemoveEndpoint(3) // it has joined and left before it was taken
		n.Admit(3)
		n.RemoveEndpoint(2)
		n.Admit(2)
		n.Learn(3, "b.example.com", []dnsname.Address{address("192.0.2.1", time.Minute)}) // it has left and joined
		n.expectChange(t, nil, []string{"192.0.2.2"})
		if got := fmt.Sprint(s.Addresses()); got != "[192.0.2.1]" {
			t.Errorf("the selection has %s, want [192.0.2.1]", got)
		}
		if len(s.touched) != 0 || len(s.members) != 1 {
			t.Errorf("%d changes and %d members are kept, want none and one", len(s.touched), len(s.members))
		}
		s.Close()
		n.Learn(3, "b.example.com", []dnsname.Address{address("192.0.2.7", time.Minute)})
		n.expectChange(t, nil, nil)
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(t, nil)
		n.Select(rules(t, "*.example.com"))
		one, two := []dnsname.Address{address("192.0.2.1", time.Minute)}, []dnsname.Address{address("192.0.2.2", time.Minute)}
		if revision := n.Learn(1, "example.net", one); revision != 0 {
			t.Errorf("revision %d of a name in no selection, want 0: nobody waits", revision)
		}
		first := n.Learn(1, "a.example.com", one)
		<-n.Changed()
		taken := n.expectChange(t, []string{"192.0.2.1"}, nil)
		second := n.Learn(1, "b.example.com", two)
		if known := n.Learn(2, "c.example.com", one); known != first || first == 0 || second <= taken {
			t.Errorf("revisions are %d, %d and for the known address %d, want the first one again", first, second, known)
		}
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := n.Wait(short, first); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it waited for what is not in force: %v", err)
		}
		var waiting sync.WaitGroup
		for _, revision := range []uint64{first, second} {
			waiting.Go(func() {
				if err := n.Wait(t.Context(), revision); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		n.Confirm(taken)
		if err := n.Wait(t.Context(), first); err != nil {
			t.Error(err)
		}
		<-n.Changed()
		n.Confirm(n.expectChange(t, []string{"192.0.2.2"}, nil))
		waiting.Wait()
	})
}

// TestRandom compares what whoever takes changes has, with what naive lists say, after random calls.
func TestRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(1, 2))
		used := use{}
		n := newNames(t, func(c *Config) { c.InUse = used.inUse })
		type key struct {
			endpoint uint16
			name     string
			addr     netip.Addr
		}
		want := map[key]time.Time{}
		type follower struct {
			pattern string
			rules   *dnsname.Rules
			got     map[netip.Addr]bool
		}
		followers := map[*Selection]*follower{}
		host := func() string {
			return fmt.Sprintf("%c.%s", 'a'+r.IntN(3), []string{"one.org", "two.org", "x.one.org"}[r.IntN(3)])
		}
		for step := range 5000 {
			switch r.IntN(10) {
			case 0:
				endpoint := uint16(r.IntN(5))
				n.RemoveEndpoint(endpoint)
				n.Admit(endpoint)
				maps.DeleteFunc(want, func(k key, _ time.Time) bool { return k.endpoint == endpoint })
			case 1:
				time.Sleep(time.Duration(r.IntN(5)) * time.Second)
				used[fmt.Sprintf("%d 192.0.2.%d", r.IntN(5), r.IntN(20))] = r.IntN(3) == 0
				n.Expire()
				maps.DeleteFunc(want, func(k key, expires time.Time) bool {
					return !expires.After(time.Now()) && !used[fmt.Sprintf("%d %s", k.endpoint, k.addr)]
				})
			case 2:
				pattern := []string{"*", "*.one.org", "**.one.org", "a.*.org", "b*.two.org"}[r.IntN(5)]
				compiled := rules(t, pattern)
				followers[n.Select(compiled)] = &follower{pattern, compiled, map[netip.Addr]bool{}}
			case 3:
				for s := range followers {
					if len(followers) > 4 {
						s.Close()
						delete(followers, s)
					}
				}
			default:
				endpoint, name := uint16(r.IntN(5)), host()
				var all []dnsname.Address
				for range 1 + r.IntN(3) {
					a := dnsname.Address{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(20))}), TTL: time.Duration(r.IntN(10)) * time.Second}
					all = append(all, a)
					k, expires := key{endpoint, name, a.Addr}, time.Now().Add(a.TTL)
					if old, ok := want[k]; !ok || expires.After(old) {
						want[k] = expires
					}
				}
				n.Learn(endpoint, name, all)
			}
			changes, _ := n.Take()
			for _, c := range changes {
				f := followers[c.Selection]
				for _, a := range c.Added {
					if f.got[a] {
						t.Fatalf("step %d: %s was added twice", step, a)
					}
					f.got[a] = true
				}
				for _, a := range c.Removed {
					if !f.got[a] {
						t.Fatalf("step %d: %s was removed twice", step, a)
					}
					delete(f.got, a)
				}
			}
			for s, f := range followers {
				selected := map[netip.Addr]bool{}
				for k := range want {
					if f.rules.Match(k.name) {
						selected[k.addr] = true
					}
				}
				if !maps.Equal(selected, f.got) || len(s.Addresses()) != len(selected) {
					t.Fatalf("step %d: the selection of %s has %v, want %v", step, f.pattern, f.got, selected)
				}
			}
		}
		for id := range uint16(5) {
			n.RemoveEndpoint(id)
			n.Admit(id)
		}
		if len(n.names)+len(n.endpoints) != 0 {
			t.Errorf("%d names and %d endpoints are left without addresses", len(n.names), len(n.endpoints))
		}
	})
}

// TestConcurrent is for the race detector.
func TestConcurrent(t *testing.T) {
	n := newNames(t, func(c *Config) { c.NameLimit, c.EndpointLimit = 3, 10 })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	done := make(chan struct{})
	var policy, others sync.WaitGroup
	n.Select(rules(t, "*"))
	policy.Go(func() {
		for {
			select {
			case <-n.Changed():
				_, revision := n.Take()
				n.Confirm(revision)
			case <-done:
				return
			}
		}
	})
	for id := range uint16(4) {
		others.Go(func() {
			for i := range 500 {
				a := dnsname.Address{Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}
				if err := n.Wait(ctx, n.Learn(id, fmt.Sprint(i%7), []dnsname.Address{a})); err != nil {
					t.Error(err)
					return
				}
				if i%50 == 0 {
					n.Expire()
					n.RemoveEndpoint(id)
					n.Admit(id)
				}
			}
		})
	}
	others.Wait()
	close(done)
	policy.Wait()
}
