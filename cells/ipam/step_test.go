package ipam_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/fault"
)

// life is a manager whose steps are ipam, on a prefix of five addresses, and a datapath that can fail.
type life struct {
	endpointmanager.Service
	addresses *allocator.Allocator
	datapath  *endpointmanagertest.Step
	ledger    string
	endpoints *endpointmanager.Table
}

func begin(t *testing.T, dir string) life {
	t.Helper()
	return beginWith(t, dir, "10.0.0.0/29")
}

func beginWith(t *testing.T, dir, prefix string) life {
	t.Helper()
	cfg := ipam.DefaultConfig()
	cfg.PodCIDRs = []string{prefix}
	addresses, err := ipam.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := life{
		addresses: addresses, datapath: endpointmanagertest.NewStep("datapath"), ledger: filepath.Join(dir, "ledger.db"),
		endpoints: endpointmanager.NewTable(),
	}
	manager := endpointmanager.DefaultConfig()
	manager.StateDir = dir
	l.Service = endpointmanager.New(endpointmanager.Params{
		Config: manager, Log: slog.New(slog.DiscardHandler), Table: l.endpoints,
		Steps: endpoint.Steps{ipam.NewStep(allocator.NewSource(addresses, nil)), l.datapath},
	})
	return l
}

func (l life) start(t *testing.T) {
	t.Helper()
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Stop(context.Background()) })
}

func (l life) add(t *testing.T, attachment string) netip.Addr {
	t.Helper()
	ep, err := l.Create(t.Context(), endpointmanagertest.Spec(attachment), nil)
	if err != nil {
		t.Fatal(err)
	}
	return ep.Addresses.IPv4
}

// withReservation is an ADD that brings the token of a reservation.
func (l life) withReservation(t *testing.T, attachment, token string) (netip.Addr, error) {
	t.Helper()
	spec := endpointmanagertest.Spec(attachment)
	spec.Reservation = token
	ep, err := l.Create(t.Context(), spec, nil)
	return ep.Addresses.IPv4, err
}

func (l life) del(attachment string) {
	l.Delete(context.Background(), endpointmanagertest.Spec(attachment).Attachment, endpoint.DeleteConfig{})
}

func (l life) want(t *testing.T, used, quarantined int64) {
	t.Helper()
	if r := l.addresses.Usage().Pools[0].Blocks[0]; r.Used != used || r.Resting != quarantined {
		t.Errorf("%d used, %d quarantined, want %d and %d", r.Used, r.Resting, used, quarantined)
	}
}

var errKernel = errors.New("the kernel said no")

func TestReleaseIncomplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, t.TempDir())
		l.start(t)
		l.add(t, "c1:eth0")
		l.datapath.Fail("detach", 100, errKernel)
		l.del("c1:eth0")
		time.Sleep(5 * time.Minute) // many quarantines
		synctest.Wait()
		l.want(t, 1, 0)
		for _, other := range []string{"c2:eth0", "c3:eth0", "c4:eth0", "c5:eth0"} {
			l.add(t, other)
		}
		l.datapath.Fail("detach", 0, nil)
		time.Sleep(2 * time.Minute) // the next try, and the quarantine
		synctest.Wait()
		l.want(t, 4, 0)
	})
}

// TestRestoreUnfinishedDeletion: until then the address is its owner's, and then it rests.
func TestRestoreUnfinishedDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := begin(t, dir)
		l.start(t)
		l.add(t, "c1:eth0")
		l.datapath.Fail("detach", 1, errKernel)
		l.del("c1:eth0")
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := begin(t, dir)
		next.datapath.Fail("detach", 1, errKernel)
		next.start(t)
		next.want(t, 1, 0)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		next.want(t, 0, 1)
	})
}

// TestRestoreUncommitted keeps the ledger as it was before the commit.
func TestRestoreUncommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := begin(t, dir)
		l.start(t)
		release := l.datapath.Hold()
		done := make(chan error, 1)
		go func() {
			_, err := l.Create(context.Background(), endpointmanagertest.Spec("c1:eth0"), nil)
			done <- err
		}()
		synctest.Wait() // in the datapath's Attach
		l.want(t, 1, 0)
		intent, err := os.ReadFile(l.ledger)
		if err != nil {
			t.Fatal(err)
		}
		release()
		if err := errors.Join(<-done, l.Stop(t.Context()), os.WriteFile(l.ledger, intent, 0o600)); err != nil {
			t.Fatal(err)
		}
		next := begin(t, dir)
		next.start(t)
		next.want(t, 0, 0)
		if got := next.Restored(); got.Undone != 1 || got.Adopted != 0 {
			t.Errorf("report %+v", got)
		}
	})
}

func TestReleaseUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := ipam.DefaultConfig()
		cfg.PodCIDRs = []string{"10.0.0.0/29", "fd00::/126"} // five addresses, and two
		a, err := ipam.New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.Quarantine(netip.MustParseAddr("fd00::2"), time.Now().Add(-20*time.Second))
		a.Quarantine(netip.MustParseAddr("10.0.0.2"), time.Now())
		get := func(owner allocator.Handle, want endpoint.Addresses) error {
			_, err := allocator.NewSource(a, nil).Allocate(t.Context(), allocator.Request{Owner: owner, Want: want})
			return err
		}
		if err := get("c1:eth0", endpoint.Addresses{}); err != nil { // fd00::3
			t.Fatal(err)
		}
		for range 2 {
			for last := byte(3); last < 7; last++ { // each IPv4 address is taken, and IPv6 has none
				_ = get("c2:eth0", endpoint.Addresses{IPv4: netip.AddrFrom4([4]byte{10, 0, 0, last})})
			}
			if err := get("c2:eth0", endpoint.Addresses{}); !errors.Is(err, allocator.ErrExhausted) {
				t.Fatalf("error %v, want ErrExhausted", err)
			}
		}
		time.Sleep(10 * time.Second) // fd00::2 is free, and 10.0.0.2 is not
		if err := get("c2:eth0", endpoint.Addresses{}); err != nil {
			t.Error(err)
		}
	})
}

func TestAReleaseInTheFutureIsAReleaseNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := ipam.DefaultConfig()
		cfg.PodCIDRs = []string{"10.0.0.0/30"}
		a, err := ipam.New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		a.Quarantine(netip.MustParseAddr("10.0.0.2"), time.Now().Add(time.Hour)) // the wall clock was set back
		time.Sleep(cfg.Quarantine)
		if _, err := allocator.NewSource(a, nil).Allocate(t.Context(), allocator.Request{Owner: "c1:eth0"}); err != nil {
			t.Error(err)
		}
	})
}

func TestAnEndpointChoosesItsPool(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, t.TempDir())
		l.start(t)
		spec := endpointmanagertest.Spec("c1:eth0")
		for pool, want := range map[string]error{"blue": allocator.ErrUnknownPool, "Blue!": nil} {
			spec.Pool = pool
			_, err := l.Create(t.Context(), spec, nil)
			if fault.KindOf(err) != fault.Invalid || want != nil && !errors.Is(err, want) {
				t.Errorf("pool %q: error %v", pool, err)
			}
		}
		l.want(t, 0, 0)
		spec.Pool = allocator.DefaultPool
		if _, err := l.Create(t.Context(), spec, nil); err != nil {
			t.Error(err)
		}
		l.want(t, 1, 0)
	})
}

// TestTheLegacyHandleGoesWithItsPod by way of the step, which knows the pod.
func TestTheLegacyHandleGoesWithItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, t.TempDir())
		l.start(t)
		if _, err := allocator.NewSource(l.addresses, nil).Allocate(t.Context(), allocator.Request{Owner: "default.pod-c1"}); err != nil {
			t.Fatal(err)
		}
		l.add(t, "c1:eth0")
		l.wantHealthy(t)
		l.del("c1:eth0")
		l.want(t, 0, 2)
	})
}

// TestWhatIsBroughtBackIsOfItsPool by the record. An earlier version's record has the requested pool, if there was one.
func TestWhatIsBroughtBackIsOfItsPool(t *testing.T) {
	for name, test := range map[string]struct {
		asked, recorded string
		external, found bool
		want            string
	}{
		"chosen":            {recorded: "red", want: "red"},
		"asked for":         {asked: "blue", recorded: "blue", want: "blue"},
		"asked for, once":   {asked: "blue", want: "blue"},
		"nothing, once":     {want: allocator.DefaultPool},
		"of another IPAM":   {external: true, want: allocator.ExternalPool},
		"of another, asked": {asked: "blue", external: true, want: allocator.ExternalPool},
		"a link without":    {found: true, want: ""},
	} {
		l := begin(t, t.TempDir())
		ep := endpoint.Endpoint{Spec: endpointmanagertest.Spec("c1:eth0"), Pool: test.recorded}
		ep.Spec.Pool, ep.Spec.ExternalIPAM = test.asked, test.external
		if test.found {
			ep.Spec.Network, ep.Spec.Pod = "", endpoint.Pod{}
		}
		ep.Addresses.IPv4 = netip.MustParseAddr("10.0.0.2")
		if _, err := ipam.NewStep(allocator.NewSource(l.addresses, nil)).Restore(t.Context(), ep); err != nil {
			t.Fatal(err)
		}
		if got := l.addresses.List(); len(got) != 1 || got[0].Pool != test.want {
			t.Errorf("%s: %+v, want pool %q", name, got, test.want)
		}
	}
}

// TestReservationUsed: a permanent reservation owns its address before, during and after the life of an endpoint that
// uses it.
func TestReservationUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := begin(t, dir)
		l.start(t)
		reserved, err := allocator.NewSource(l.addresses, nil).Reserve(t.Context(), allocator.Request{Owner: "db"}, allocator.Permanent)
		if err != nil {
			t.Fatal(err)
		}
		wantReserved := func(when string) {
			t.Helper()
			if list := l.addresses.List(); len(list) != 1 || list[0].Owner != "db" || !list[0].IsPermanent() {
				t.Errorf("%s the allocator has %+v", when, list)
			}
			l.want(t, 1, 0)
		}
		for _, attachment := range []string{"c1:eth0", "c2:eth0"} {
			if got, err := l.withReservation(t, attachment, reserved.Token); err != nil || got != reserved.Addresses.IPv4 {
				t.Fatalf("%s got %s, error %v, want %s", attachment, got, err, reserved.Addresses.IPv4)
			}
			wantReserved("with " + attachment)
			if _, err := l.withReservation(t, "c3:eth0", reserved.Token); !errors.Is(err, endpointmanager.ErrInUse) {
				t.Errorf("a second endpoint: error %v, want %v", err, endpointmanager.ErrInUse)
			}
			wantReserved("after the second was refused")
			if attachment == "c2:eth0" { // an agent that is told of the reservation first
				if err := l.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				l = begin(t, dir)
				if err := l.addresses.RestoreReservation(reserved); err != nil {
					t.Fatal(err)
				}
				l.start(t)
				wantReserved("after a restart")
			}
			l.del(attachment)
			wantReserved("after " + attachment)
		}
	})
}

// TestReservationLost: the reservation of a running endpoint is gone from the disk. The endpoint has the address until
// it is deleted.
func TestReservationLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := begin(t, dir)
		l.start(t)
		reserved, err := allocator.NewSource(l.addresses, nil).Reserve(t.Context(), allocator.Request{Owner: "db"}, allocator.Permanent)
		if err == nil {
			_, err = l.withReservation(t, "c1:eth0", reserved.Token)
		}
		if err := errors.Join(err, l.Stop(t.Context())); err != nil {
			t.Fatal(err)
		}
		l = begin(t, dir)
		l.start(t)
		l.want(t, 1, 0)
		if got := l.add(t, "c2:eth0"); got == reserved.Addresses.IPv4 {
			t.Errorf("another endpoint got %s, which is in use", got)
		}
		l.del("c2:eth0")
		l.del("c1:eth0")
		l.want(t, 0, 2)
	})
}
