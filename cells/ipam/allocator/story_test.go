package allocator_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/testutil"
	"porin.dev/porin/internal/testutil/story"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

// TestStories runs the scripts of testdata. They wait for nothing: "later" has time pass, and "remember" says how long
// ago an address was released. "list" checks the allocator's memory, too.
func TestStories(t *testing.T) {
	verbs := map[string]story.Command[*world]{
		"node": (*world).node, "allocate": (*world).allocate, "release": (*world).release, "adopt": (*world).adopt,
		"foreign": (*world).foreign, "node-addresses": (*world).nodeAddresses,
		"remember": (*world).remember, "list": (*world).list, "fill": (*world).fill,
		"multi-pool": (*world).multiPool, "configure": (*world).configure,
		"add": (*world).add, "drain": (*world).drain, "remove": (*world).remove, "forget": (*world).forget, "suspend": (*world).suspend, "resume": (*world).resume,
		"allocate-from": (*world).allocateFrom, "allocate-in": (*world).allocateIn, "allocate-reserved": (*world).allocateReserved,
		"reserve": (*world).reserve, "return": (*world).giveBack, "return-reserved": (*world).returnReserved,
		"later": (*world).later, "restart": (*world).restart, "cleanup": (*world).cleanUp, "clean": (*world).clean,
		"allocate-for": (*world).allocateFor, "note": (*world).note, "release-noted": (*world).releaseNoted,
	}
	story.Run(t, func(*testscript.Env) *world { return newWorld() }, verbs)
}

// world is a node's allocator, and what was reserved or noted there.
type world struct {
	*allocator.Allocator
	again    func() error // starts the next agent
	cleanup  allocator.Cleanup
	store    memoryStore
	reserved map[string]allocator.Reservation
	noted    map[string]allocator.Allocation
}

func newWorld() *world {
	return &world{store: memoryStore{}, reserved: map[string]allocator.Reservation{}, noted: map[string]allocator.Allocation{}}
}

// start restarts the node, with nothing on its disk.
func (w *world) start(configure func() error) error {
	clear(w.store)
	w.again = func() error {
		w.Allocator = allocator.New(w.store)
		return configure()
	}
	return w.again()
}

// node: node QUARANTINE PREFIX...
func (w *world) node(ts *testscript.TestScript, args []string) error {
	quarantine, err := time.ParseDuration(args[0])
	ts.Check(err)
	return w.start(func() error { return addSubnets(w.Allocator, quarantine, args[1:]) })
}

// allocate: allocate OWNER [ADDRESS...]
func (w *world) allocate(ts *testscript.TestScript, args []string) error {
	return w.ask(ts, allocator.Request{Owner: allocator.Handle(args[0]), Want: pair(ts, args[1:])})
}

func (w *world) ask(ts *testscript.TestScript, req allocator.Request) error {
	got, err := w.Allocate(req)
	if err == nil {
		show(ts, got.Addresses)
	}
	return err
}

func show(ts *testscript.TestScript, addresses endpoint.Addresses) {
	_, _ = fmt.Fprintln(ts.Stdout(), strings.Trim(fmt.Sprint(addresses.List()), "[]"))
}

func pair(ts *testscript.TestScript, args []string) (out endpoint.Addresses) {
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
		if !w.Release(allocator.Handle(owner)) {
			return fmt.Errorf("%s has nothing", owner)
		}
	}
	return nil
}

func (w *world) adopt(ts *testscript.TestScript, args []string) error {
	return w.Adopt(allocator.Allocation{Owner: allocator.Handle(args[0]), Pool: allocator.DefaultPool, Addresses: pair(ts, args[1:])})
}

// foreign: foreign OWNER ADDRESS... is what another IPAM has given.
func (w *world) foreign(ts *testscript.TestScript, args []string) error {
	return w.Adopt(allocator.Allocation{
		Owner: allocator.Handle(args[0]), Pool: allocator.ExternalPool, External: true, Addresses: pair(ts, args[1:]),
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
		if _, err := w.Allocate(allocator.Request{Owner: allocator.Handle(fmt.Sprintf("fill-%d", i+1))}); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) list(ts *testscript.TestScript, _ []string) error {
	usage := w.Usage()
	for _, pool := range usage.Pools {
		for _, b := range pool.Blocks {
			for _, addr := range b.NodeAddresses {
				_, _ = fmt.Fprintf(ts.Stdout(), "avoided %s\n", addr)
			}
			drained := map[bool]string{true: ", drained"}[b.Drained]
			_, _ = fmt.Fprintf(ts.Stdout(), "%s %s: %d used, %d quarantined, %d free%s\n", pool.Name, b.Prefix, b.Used, b.Resting, b.Free, drained)
		}
	}
	for _, x := range usage.Allocations {
		for _, addr := range x.Addresses.List() {
			_, _ = fmt.Fprintf(ts.Stdout(), "%s %s\n", addr, x.ShownOwner())
		}
	}
	if faults := allocator.CheckInvariants(w.Allocator); len(faults) > 0 {
		return fmt.Errorf("inconsistent: %q", faults)
	}
	return nil
}

// later: later DURATION passes.
func (w *world) later(ts *testscript.TestScript, args []string) error {
	by, err := time.ParseDuration(args[0])
	ts.Check(err)
	allocator.Later(w.Allocator, by)
	for token, r := range w.store {
		if !r.Expires.IsZero() {
			r.Expires = r.Expires.Add(-by)
			w.store[token] = r
		}
	}
	return nil
}

// restart: the next agent, of the same configuration, which has been told of the reservations alone.
func (w *world) restart(*testscript.TestScript, []string) error {
	if err := w.again(); err != nil {
		return err
	}
	for _, r := range w.store {
		if err := w.RestoreReservation(r); err != nil {
			return err
		}
	}
	return nil
}

// cleanup: from now on released addresses need a cleanup; clean is the cleanup.
func (w *world) cleanUp(*testscript.TestScript, []string) error {
	w.cleanup = w.Cleanup(func() {})
	return nil
}

func (w *world) clean(*testscript.TestScript, []string) error {
	w.cleanup.Done(w.cleanup.Pending())
	return nil
}

func TestQuarantineEndsOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := podCIDR(t, "10.0.0.0/30") // one address is left: .2
		get := func(owner allocator.Handle) error {
			_, err := a.Allocate(allocator.Request{Owner: owner})
			return err
		}
		if err := get("c1:eth0"); err != nil {
			t.Fatal(err)
		}
		a.Release("c1:eth0")
		time.Sleep(30*time.Second - time.Nanosecond)
		if err := get("c2:eth0"); !errors.Is(err, allocator.ErrExhausted) {
			t.Errorf("a nanosecond before the end: error %v, want ErrExhausted", err)
		}
		time.Sleep(time.Nanosecond)
		if err := get("c2:eth0"); err != nil {
			t.Errorf("at the end: %v", err)
		}
	})
}
