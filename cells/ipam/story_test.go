package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestStories runs the scripts of testdata. "after 30s" lets time pass without waiting for it: the script's clock is
// what the released addresses are told.
func TestStories(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		RequireUniqueNames: true,
		Setup: func(env *testscript.Env) error {
			env.Values[allocatorKey{}] = new(ipam.Allocator)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"node": command(startNode), "allocate": command(allocate), "release": command(release),
			"adopt": command(adopt), "remember": command(remember), "list": command(list), "fill": command(fill),
		},
	})
}

type allocatorKey struct{}

func command(run func(*testscript.TestScript, ipam.Allocator, []string) error) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		err := run(ts, *ts.Value(allocatorKey{}).(*ipam.Allocator), args)
		if err != nil {
			_, _ = fmt.Fprintln(ts.Stderr(), err)
		}
		if (err != nil) != neg {
			ts.Fatalf("error %v, want one: %v", err, neg)
		}
	}
}

// startNode: node QUARANTINE PREFIX...
func startNode(ts *testscript.TestScript, _ ipam.Allocator, args []string) error {
	quarantine, err := time.ParseDuration(args[0])
	ts.Check(err)
	cfg := ipam.DefaultConfig()
	cfg.Quarantine, cfg.PodCIDRs = quarantine, args[1:]
	a, err := ipam.New(cfg)
	*ts.Value(allocatorKey{}).(*ipam.Allocator) = a
	return err
}

// allocate: allocate OWNER [ADDRESS...]
func allocate(ts *testscript.TestScript, a ipam.Allocator, args []string) error {
	got, err := a.Allocate(context.Background(), ipam.Request{Owner: ipam.Handle(args[0]), Want: pair(ts, args[1:])})
	if err == nil {
		_, _ = fmt.Fprintln(ts.Stdout(), strings.Trim(fmt.Sprint(got.Addresses.List()), "[]"))
	}
	return err
}

func pair(ts *testscript.TestScript, args []string) (out endpointmanager.Addresses) {
	for _, text := range args {
		addr, err := netip.ParseAddr(text)
		ts.Check(err)
		if addr.Is4() {
			out.IPv4 = addr
		} else {
			out.IPv6 = addr
		}
	}
	return out
}

func release(ts *testscript.TestScript, a ipam.Allocator, args []string) error {
	for _, owner := range args {
		if !a.Release(ipam.Handle(owner)) {
			return fmt.Errorf("%s has nothing", owner)
		}
	}
	return nil
}

func adopt(ts *testscript.TestScript, a ipam.Allocator, args []string) error {
	return a.Adopt(ipam.Allocation{Owner: ipam.Handle(args[0]), Pool: ipam.DefaultPool, Addresses: pair(ts, args[1:])})
}

// remember: remember AGE ADDRESS
func remember(ts *testscript.TestScript, a ipam.Allocator, args []string) error {
	age, err := time.ParseDuration(args[0])
	ts.Check(err)
	a.Quarantine(netip.MustParseAddr(args[1]), time.Now().Add(-age))
	return nil
}

// fill: fill N allocates for N owners fill-1 ... fill-N.
func fill(ts *testscript.TestScript, a ipam.Allocator, args []string) error {
	var n int
	_, err := fmt.Sscan(args[0], &n)
	ts.Check(err)
	for i := range n {
		if _, err := a.Allocate(context.Background(), ipam.Request{Owner: ipam.Handle(fmt.Sprintf("fill-%d", i+1))}); err != nil {
			return err
		}
	}
	return nil
}

func list(ts *testscript.TestScript, a ipam.Allocator, _ []string) error {
	usage := a.Usage()
	for _, pool := range usage.Pools {
		for _, r := range pool.Ranges {
			_, _ = fmt.Fprintf(ts.Stdout(), "%s %s: %d used, %d quarantined, %d free\n", pool.Name, r.Prefix, r.Used, r.Quarantined, r.Free)
		}
	}
	for _, x := range usage.Allocations {
		_, _ = fmt.Fprintf(ts.Stdout(), "%s %s\n", x.Address, x.Owner)
	}
	return nil
}

func TestQuarantineEndsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := ipam.DefaultConfig()
		cfg.PodCIDRs = []string{"10.0.0.0/30"} // one address is left: .2
		a, err := ipam.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		get := func(owner ipam.Handle) error {
			_, err := a.Allocate(t.Context(), ipam.Request{Owner: owner})
			return err
		}
		if err := get("c1:eth0"); err != nil {
			t.Fatal(err)
		}
		a.Release("c1:eth0")
		time.Sleep(cfg.Quarantine - time.Nanosecond)
		if err := get("c2:eth0"); !errors.Is(err, ipam.ErrExhausted) {
			t.Errorf("a nanosecond before the end: error %v, want ErrExhausted", err)
		}
		time.Sleep(time.Nanosecond)
		if err := get("c2:eth0"); err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
}
