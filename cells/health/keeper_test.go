package health

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/health/probe"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/ipamtest"
	"porin.dev/porin/internal/testutil"
)

// loopback is a step that gives the addresses to lo of the endpoint's namespace.
type loopback struct{}

func (loopback) Name() string { return "loopback" }

func (loopback) Attach(_ context.Context, ep endpoint.Endpoint, namespace *endpoint.Namespace) (endpoint.Endpoint, error) {
	if namespace == nil {
		return ep, nil
	}
	errs := []error{namespace.Netlink().LinkSetUp(testutil.LinkAt(1))}
	for _, addr := range ep.Addresses.List() {
		a := testutil.Address(netip.PrefixFrom(addr, addr.BitLen()))
		a.Flags = unix.IFA_F_NODAD
		errs = append(errs, namespace.Netlink().AddrReplace(testutil.LinkAt(1), a))
	}
	return ep, errors.Join(errs...)
}

func (loopback) Detach(context.Context, endpoint.Endpoint, endpoint.DeleteConfig) error { return nil }

func (loopback) Restore(context.Context, endpoint.Endpoint) ([]string, error) { return nil, nil }

// rig is a node with a keeper, a real manager and real addresses. The rig answers the requests to the endpoint.
type rig struct {
	*testing.T
	cfg       Config
	addresses ipamtest.Addresses
	service   endpointmanager.Service
	table     *endpointmanager.Table
	keeper    *Keeper
	log       strings.Builder

	mu    sync.Mutex // guards the fields below
	fails error
	asked []netip.Addr
}

func newRig(t *testing.T) *rig {
	t.Helper()
	testutil.Root(t)
	r := &rig{T: t, cfg: DefaultConfig()}
	r.cfg.Node, r.cfg.StateDir = "node1", t.TempDir()
	t.Cleanup(func() {
		r.stop()
		_ = boundNamespace{r.cfg.namespacePath()}.remove()
	})
	r.start()
	return r
}

// start starts manager and keeper as the agent does, with nothing in memory.
func (r *rig) start() {
	r.Helper()
	r.addresses = ipamtest.New(r, "10.0.0.0/28", "fd00::/124")
	cfg := endpointmanager.DefaultConfig()
	cfg.StateDir, cfg.RetryInterval = filepath.Join(r.cfg.StateDir, "manager"), time.Millisecond
	log := slog.New(slog.NewTextHandler(&r.log, nil))
	local := NewLocalEndpoint()
	r.table = endpointmanager.NewTable()
	r.service = endpointmanager.New(endpointmanager.Params{
		Config: cfg, Log: slog.New(slog.DiscardHandler), Table: r.table, Steps: endpoint.Steps{r.addresses.Step, loopback{}}, Subscribers: []endpoint.Subscriber{local},
	})
	if err := r.service.Start(r.Context()); err != nil {
		r.Fatal(err)
	}
	r.keeper = NewKeeper(r.cfg, log, Parts{Manager: r.service, Lookup: r.table, Local: local, Transport: r})
	r.keeper.pause = time.Millisecond
}

func (r *rig) stop() {
	if err := errors.Join(r.keeper.Stop(context.Background()), r.service.Stop(context.Background())); err != nil {
		r.Error(err)
	}
}

func (r *rig) Ping(_ context.Context, addr netip.Addr) (time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, addr)
	return time.Millisecond, r.fails
}

func (r *rig) Hello(ctx context.Context, addr netip.Addr) (string, time.Duration, error) {
	latency, err := r.Ping(ctx, addr)
	return r.cfg.Node, latency, err
}

func (r *rig) failing(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = err
}

// round has the keeper do one.
func (r *rig) round() error { return r.keeper.round(r.Context()) }

func (r *rig) endpoint() endpoint.Endpoint {
	r.Helper()
	if err := r.round(); err != nil {
		r.Fatal(err)
	}
	ep, err := r.keeper.find()
	if err != nil {
		r.Fatal(err)
	}
	return ep
}

// take gives an address to another owner.
func (r *rig) take(addresses endpoint.Addresses) {
	r.Helper()
	_, err := r.service.Create(r.Context(), endpoint.Spec{
		Attachment: endpoint.Attachment{ContainerID: "pod" + strings.NewReplacer(".", "-", ":", "-").Replace(addresses.List()[0].String()), IfName: "eth0"},
		Network:    "porin", Requested: addresses,
	}, nil)
	if err != nil {
		r.Fatal(err)
	}
}

// owners are the handles of all that has addresses.
func (r *rig) owned(addr netip.Addr) allocator.Handle {
	_, owner := r.addresses.Allocator.Lookup(addr)
	return owner
}

func TestKeeperCreates(t *testing.T) {
	r := newRig(t)
	changed := r.keeper.local.Changed()
	ep := r.endpoint()
	if ep.Spec.Kind != endpoint.KindHealth || ep.State != endpoint.Ready || len(ep.Addresses.List()) != 2 {
		t.Fatalf("%+v", ep)
	}
	if len(r.asked) != 4 {
		t.Errorf("asked %v, want both protocols by both addresses", r.asked)
	}
	select {
	case <-changed:
	default:
		t.Error("who publishes the addresses was not told")
	}
	if got := r.keeper.local.Addresses(); len(got) != 2 || got[0] != ep.Addresses.IPv4 {
		t.Errorf("addresses %v, want %v", got, ep.Addresses)
	}
	if again := r.endpoint(); again != ep {
		t.Errorf("the next round has made %+v of %+v", again, ep)
	}
}

// A restart of the agent leaves endpoint and namespace as they are.
func TestKeeperRestores(t *testing.T) {
	r := newRig(t)
	ep := r.endpoint()
	r.stop()
	r.start()
	if got := r.keeper.local.Addresses(); len(got) != 2 {
		t.Errorf("addresses before the first round: %v", got)
	}
	if again := r.endpoint(); again.ID != ep.ID || again.Spec.NetNSCookie != ep.Spec.NetNSCookie || !again.Created.Equal(ep.Created) {
		t.Errorf("%+v, was %+v", again, ep)
	}
}

func TestKeeperRecreates(t *testing.T) {
	for name, row := range map[string]struct{ damage, mend func(r *rig) }{
		"no answer": {func(r *rig) { r.failing(probe.ErrTimeout) }, func(r *rig) { r.failing(nil) }},
		"namespace lost": {func(r *rig) {
			if err := r.keeper.namespace.remove(); err != nil {
				r.Fatal(err)
			}
			r.keeper.responder.stop(r.Context())
		}, func(*rig) {}},
		"another namespace": {func(r *rig) {
			file, err := r.keeper.namespace.make()
			if err != nil {
				r.Fatal(err)
			}
			_ = file.Close()
		}, func(*rig) {}},
		"deleted": {func(r *rig) {
			r.service.Delete(r.Context(), Attachment(), endpoint.DeleteConfig{NoIPRelease: true})
			if got := r.keeper.local.Addresses(); len(got) != 0 {
				r.Errorf("addresses of a deleted endpoint: %v", got)
			}
		}, func(*rig) {}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			ep := r.endpoint()
			row.damage(r)
			_ = r.round() // one may still fail
			row.mend(r)
			after := r.endpoint()
			if after.Addresses != ep.Addresses || after.Spec.NetNSCookie == ep.Spec.NetNSCookie {
				t.Errorf("%+v, was %+v", after, ep)
			}
		})
	}
}

// Another endpoint does not mend a fault of the agent.
func TestKeeperLeavesEndpointWithoutPermission(t *testing.T) {
	r := newRig(t)
	ep := r.endpoint()
	r.failing(unix.EPERM)
	if err := r.round(); !errors.Is(err, unix.EPERM) {
		t.Errorf("error %v", err)
	}
	if r.keeper.Status().Recreated != 0 || r.keeper.Status().Err == nil {
		t.Errorf("%+v", r.keeper.Status())
	}
	r.failing(nil)
	if again := r.endpoint(); again != ep {
		t.Errorf("%+v, was %+v", again, ep)
	}
}

// An endpoint that goes on failing is not replaced without a pause.
func TestKeeperRecreatesOnceInAWhile(t *testing.T) {
	r := newRig(t)
	r.endpoint()
	r.failing(unix.EHOSTUNREACH)
	for range 3 {
		if err := r.round(); !errors.Is(err, unix.EHOSTUNREACH) {
			t.Errorf("error %v", err)
		}
	}
	if n := r.keeper.Status().Recreated; n != 1 {
		t.Errorf("it was made anew %d times at once", n)
	}
}

// After a boot the endpoint is made again, with any addresses.
func TestKeeperAfterBoot(t *testing.T) {
	r := newRig(t)
	ep := r.endpoint()
	r.stop()
	if err := errors.Join(boundNamespace{r.cfg.namespacePath()}.remove(), os.RemoveAll(filepath.Join(r.cfg.StateDir, "manager"))); err != nil {
		t.Fatal(err)
	}
	r.start()
	r.take(ep.Addresses)
	if after := r.endpoint(); len(after.Addresses.List()) != 2 || after.Addresses.IPv4 == ep.Addresses.IPv4 || after.Addresses.IPv6 == ep.Addresses.IPv6 {
		t.Errorf("another endpoint has %v, and the health endpoint %v", ep.Addresses, after.Addresses)
	}
}

func TestKeeperOff(t *testing.T) {
	r := newRig(t)
	ep := r.endpoint()
	r.stop()
	r.cfg.Endpoint = false
	r.start()
	if err := r.round(); err != nil {
		t.Fatal(err)
	}
	if _, err := r.keeper.find(); !errors.Is(err, endpointmanager.ErrNotFound) {
		t.Errorf("the endpoint: %v", err)
	}
	if owner := r.owned(ep.Addresses.IPv4); owner != "" {
		t.Errorf("%s is %s's", ep.Addresses.IPv4, owner)
	}
	if _, err := os.Stat(r.cfg.namespacePath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the namespace: %v", err)
	}
	if len(r.keeper.local.Addresses()) != 0 {
		t.Error("its addresses are published")
	}
}

// Somebody else's endpoint of that name is not touched.
func TestKeeperForeignEndpoint(t *testing.T) {
	r := newRig(t)
	if _, err := r.service.Create(t.Context(), endpoint.Spec{Attachment: Attachment(), Network: "porin"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.round(); err == nil || len(r.keeper.local.Addresses()) != 0 {
		t.Errorf("error %v, published %v", err, r.keeper.local.Addresses())
	}
}

// A failed creation leaves nothing behind.
func TestKeeperCreationFails(t *testing.T) {
	r := newRig(t)
	files := testutil.OpenFiles(t)
	for i := range 13 { // all addresses
		addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(2 + i)})
		r.take(endpoint.Addresses{IPv4: addr})
	}
	for range 3 {
		if err := r.round(); err == nil {
			t.Fatal("no address is free, and there is an endpoint")
		}
	}
	if _, err := os.Stat(r.cfg.namespacePath()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the namespace: %v", err)
	}
	if now := testutil.OpenFiles(t); now != files {
		t.Errorf("%d files are open, %d before", now, files)
	}
	testutil.NoThreadsAway(t)
}
