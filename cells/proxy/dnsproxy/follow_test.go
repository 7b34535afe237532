package dnsproxy

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/miekg/dns"

	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/cells/policy/names"
)

// follow is the Learn of a handler whose policy follows the names.
func follow(known *names.Names) func(Answer) (func(context.Context) error, error) {
	return func(a Answer) (func(context.Context) error, error) {
		revision := known.Learn(a.Endpoint, a.Name, a.Addresses)
		if known.InForce(revision) {
			return nil, nil
		}
		return func(ctx context.Context) error { return known.Wait(ctx, revision) }, nil
	}
}

// TestNamesFollow has a policy that needs a while to write the addresses of names, and does not always succeed.
func TestNamesFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := names.DefaultConfig()
		c.InUse = func(map[names.Use]bool) {}
		c.Protected = netip.MustParsePrefix("10.0.0.0/8").Contains
		known := names.New(c)
		selection := known.Select(compile(t, model.DNSRule{Name: "example.com"}))
		q := query("example.com.", dns.TypeA)
		var text string
		p := newProxy(t, func(c *Config) {
			c.Limits = DefaultLimits()
			c.Open = func(query Query, receive func([]byte)) (Socket, error) {
				return instant{answerBytes(t, q, "example.com. 60 IN CNAME a.cdn.net.", "a.cdn.net. 60 IN A "+text)}.open(query, receive)
			}
			c.Learn = follow(known)
		})
		// write takes what is new, and has it in force after a while.
		var policy sync.WaitGroup
		defer policy.Wait()
		write := func(after time.Duration) {
			<-known.Changed()
			_, revision := known.Take()
			time.Sleep(after)
			known.Confirm(revision)
		}
		ask := func(address string, code int, duration time.Duration) {
			t.Helper()
			text = address
			r := p.ask(t, q)
			if rec := p.lastRecord(t); r.Rcode != code || rec.Duration != duration {
				t.Errorf("%s: code %d after %s, want %d after %s", address, r.Rcode, rec.Duration, code, duration)
			}
		}
		policy.Go(func() { write(20 * time.Millisecond) })
		ask("192.0.2.1", dns.RcodeSuccess, 20*time.Millisecond)
		ask("192.0.2.1", dns.RcodeSuccess, 0)
		ask("10.0.0.1", dns.RcodeSuccess, 0) // a pod's: it has its own place in the policy
		policy.Go(func() { write(DefaultLimits().Timeout + 50*time.Millisecond) })
		ask("192.0.2.2", dns.RcodeServerFailure, DefaultLimits().Timeout)
		ask("192.0.2.1", dns.RcodeSuccess, 0) // musl asks again at once, with the same ID
		ask("192.0.2.2", dns.RcodeSuccess, 50*time.Millisecond)
		if got := fmt.Sprint(selection.Addresses()); got != "[192.0.2.1 192.0.2.2]" {
			t.Errorf("the selection has %s", got)
		}
	})
}
