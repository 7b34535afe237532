package ipam_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/delegate"
	"porin.dev/porin/internal/fault"
)

// foreign is an ADD with an address that another IPAM gave.
func (l life) foreign(t *testing.T, attachment, addr string) error {
	t.Helper()
	spec := endpointmanagertest.Spec(attachment)
	spec.ExternalIPAM, spec.Requested.IPv4 = true, netip.MustParseAddr(addr)
	_, err := l.Create(t.Context(), spec, nil)
	return err
}

func TestAnAddressOfAnotherIPAMIsNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := begin(t, dir)
		l.start(t)
		if err := l.foreign(t, "x:eth0", "10.0.0.2"); err != nil { // the first that ours would give
			t.Fatal(err)
		}
		if got := l.add(t, "c1:eth0"); got.String() != "10.0.0.3" {
			t.Errorf("ours gave %s", got)
		}
		if err := l.foreign(t, "y:eth0", "10.0.0.3"); !errors.Is(err, allocator.ErrInUse) || fault.KindOf(err) != fault.Conflict {
			t.Errorf("an address of another endpoint: error %v, want %v", err, allocator.ErrInUse)
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		l = begin(t, dir)
		l.start(t)
		if got := l.Restored(); got.Adopted+got.Replaced != 2 {
			t.Errorf("report %+v", got)
		}
		if got := l.add(t, "c2:eth0"); got.String() != "10.0.0.4" {
			t.Errorf("after a restart ours gave %s", got)
		}
		l.want(t, 3, 0)
		l.del("x:eth0")
		l.want(t, 2, 0)
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		l = begin(t, dir)
		l.start(t)
		l.want(t, 2, 0) // and its tombstone is no release of ours
	})
}

func TestDelegatedReleaseIncomplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := begin(t, dir)
		l.start(t)
		if err := l.foreign(t, "x:eth0", "10.0.0.2"); err != nil {
			t.Fatal(err)
		}
		l.datapath.Fail("detach", 1, errKernel)
		l.del("x:eth0")
		l.want(t, 1, 0)
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		l = begin(t, dir)
		l.datapath.Fail("detach", 1, errKernel)
		l.start(t)
		l.want(t, 1, 0)
		if got := l.add(t, "c1:eth0"); got.String() != "10.0.0.3" {
			t.Errorf("ours gave %s", got)
		}
	})
}

// TestDetachNoIPRelease, and it does not count as a leak.
func TestDetachNoIPRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, t.TempDir())
		l.start(t)
		l.add(t, "c1:eth0")
		l.Delete(context.Background(), endpointmanagertest.Spec("c1:eth0").Attachment, endpoint.DeleteConfig{NoIPRelease: true})
		l.want(t, 1, 0)
		if findings := l.examine(t, ""); len(findings) > 0 {
			t.Errorf("found %+v", findings)
		}
		if got := l.add(t, "c1:eth0"); got.String() != "10.0.0.2" {
			t.Errorf("the attachment's next life got %s", got)
		}
		l.del("c1:eth0")
		l.want(t, 0, 1)
	})
}

// TestRestoreNoIPRelease restarts the agent in the middle of a deletion that keeps the address, and after it.
func TestRestoreNoIPRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := begin(t, dir)
		l.start(t)
		l.add(t, "c1:eth0")
		l.datapath.Fail("detach", 1, errKernel)
		l.Delete(context.Background(), endpointmanagertest.Spec("c1:eth0").Attachment, endpoint.DeleteConfig{NoIPRelease: true})
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		l = begin(t, dir)
		l.start(t)
		l.want(t, 1, 0) // kept
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		l = begin(t, dir)
		l.start(t)
		l.want(t, 0, 1) // it rests before another owner can have it
		if err := l.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
}

func TestUndoReleasesAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, t.TempDir())
		l.start(t)
		l.datapath.Fail("attach", 2, errKernel)
		if _, err := l.Create(t.Context(), endpointmanagertest.Spec("c1:eth0"), nil); !errors.Is(err, errKernel) {
			t.Errorf("error %v, want %v", err, errKernel)
		}
		l.want(t, 0, 1)
		if err := l.foreign(t, "x:eth0", "10.0.0.3"); !errors.Is(err, errKernel) {
			t.Errorf("error %v, want %v", err, errKernel)
		}
		l.want(t, 0, 1)
	})
}

// TestDelegatedDHCP: an endpoint with a lease that an earlier agent let the plugin take can be deleted.
func TestDelegatedDHCP(t *testing.T) {
	cfg := ipam.DefaultConfig()
	cfg.PodCIDRs = []string{"10.0.0.0/29"}
	addresses, err := ipam.New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	step := ipam.NewStep(allocator.NewSource(addresses, nil)).WithPlugins(delegate.New(delegate.Config{BinDirs: []string{t.TempDir()}}))
	ep := endpoint.Endpoint{Spec: endpointmanagertest.Spec("x:eth0"), Addresses: endpoint.Addresses{IPv4: netip.MustParseAddr("192.0.2.7")}}
	ep.Spec.ExternalIPAM, ep.Spec.IPAM = true, endpoint.IPAMPlugin{Type: "dhcp", Config: "{}"}
	if _, err := step.Restore(t.Context(), ep); err != nil {
		t.Errorf("restore: %v", err)
	}
	if err := step.Detach(t.Context(), ep, endpoint.DeleteConfig{}); err != nil {
		t.Errorf("detach: %v", err)
	}
	if _, err := step.Attach(t.Context(), ep, nil); !errors.Is(err, delegate.ErrDHCP) || fault.KindOf(err) != fault.Invalid {
		t.Errorf("attach: error %v, want %v", err, delegate.ErrDHCP)
	}
}
