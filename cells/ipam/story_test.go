package ipam_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/internal/story"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

// TestStories runs the scripts of testdata. They wait for nothing: "later" has time pass, and "remember" says how long ago an
// address was released.
func TestStories(t *testing.T) {
	verbs := map[string]story.Command[*world]{
		"node": (*world).node, "allocate": (*world).allocate, "release": (*world).release, "adopt": (*world).adopt,
		"foreign":  (*world).foreign,
		"remember": (*world).remember, "list": (*world).list, "fill": (*world).fill,
		"delegated": (*world).delegated, "multi-pool": (*world).multiPool, "configure": (*world).configure,
		"add": (*world).add, "drain": (*world).drain, "remove": (*world).remove, "cut-off": (*world).cutOff, "come-back": (*world).comeBack,
		"allocate-from": (*world).allocateFrom, "allocate-reserved": (*world).allocateReserved,
		"reserve": (*world).reserve, "return": (*world).giveBack, "return-reserved": (*world).returnReserved,
	}
	maps.Copy(verbs, quietVerbs)
	story.Run(t, func(*testscript.Env) *world { return newWorld() }, verbs)
}

// world is a node's allocator, who names addresses, and what was reserved or noted there.
type world struct {
	ipam.Allocator
	cfg            ipam.Config
	sides          ipam.Node
	reserved       map[string]ipam.Reservation
	noted          map[string]ipam.Allocation
	who            *names
	knownQuestions int
}

func newWorld() *world {
	return &world{who: newNames(), reserved: map[string]ipam.Reservation{}, noted: map[string]ipam.Allocation{}}
}

func (w *world) start(cfg ipam.Config) (err error) {
	w.cfg = cfg
	w.sides, err = ipam.NewNode(cfg, w.who)
	w.Allocator = w.sides.Allocator
	return err
}

// node: node QUARANTINE PREFIX...
func (w *world) node(ts *testscript.TestScript, args []string) error {
	quarantine, err := time.ParseDuration(args[0])
	ts.Check(err)
	cfg := ipam.DefaultConfig()
	cfg.Quarantine, cfg.PodCIDRs = quarantine, args[1:]
	return w.start(cfg)
}

// allocate: allocate OWNER [ADDRESS...]
func (w *world) allocate(ts *testscript.TestScript, args []string) error {
	return w.ask(ts, ipam.Request{Owner: ipam.Handle(args[0]), Want: pair(ts, args[1:])})
}

func (w *world) ask(ts *testscript.TestScript, req ipam.Request) error {
	got, err := w.Allocate(context.Background(), req)
	if err == nil {
		show(ts, got.Addresses)
	}
	return err
}

func show(ts *testscript.TestScript, addresses endpointmanager.Addresses) {
	_, _ = fmt.Fprintln(ts.Stdout(), strings.Trim(fmt.Sprint(addresses.List()), "[]"))
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

func (w *world) release(ts *testscript.TestScript, args []string) error {
	for _, owner := range args {
		if !w.Release(ipam.Handle(owner)) {
			return fmt.Errorf("%s has nothing", owner)
		}
	}
	return nil
}

func (w *world) adopt(ts *testscript.TestScript, args []string) error {
	return w.Adopt(ipam.Allocation{Owner: ipam.Handle(args[0]), Pool: ipam.DefaultPool, Addresses: pair(ts, args[1:])})
}

// foreign: foreign OWNER ADDRESS... is what another IPAM has given.
func (w *world) foreign(ts *testscript.TestScript, args []string) error {
	return w.Adopt(ipam.Allocation{
		Owner: ipam.Handle(args[0]), Pool: ipam.ExternalPool, External: true, Addresses: pair(ts, args[1:]),
	})
}

// remember: remember AGE ADDRESS
func (w *world) remember(ts *testscript.TestScript, args []string) error {
	age, err := time.ParseDuration(args[0])
	ts.Check(err)
	w.Quarantine(netip.MustParseAddr(args[1]), time.Now().Add(-age))
	return nil
}

// fill: fill N allocates for N owners fill-1 ... fill-N.
func (w *world) fill(ts *testscript.TestScript, args []string) error {
	var n int
	_, err := fmt.Sscan(args[0], &n)
	ts.Check(err)
	for i := range n {
		if _, err := w.Allocate(context.Background(), ipam.Request{Owner: ipam.Handle(fmt.Sprintf("fill-%d", i+1))}); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) list(ts *testscript.TestScript, _ []string) error {
	usage := w.Usage()
	for _, pool := range usage.Pools {
		for _, r := range pool.Ranges {
			drained := map[bool]string{true: ", drained"}[r.Drained]
			_, _ = fmt.Fprintf(ts.Stdout(), "%s %s: %d used, %d quarantined, %d free%s\n", pool.Name, r.Prefix, r.Used, r.Quarantined, r.Free, drained)
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
