package ipam_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/doctor/doctortest"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager/endpointmanagertest"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
)

var _ doctor.Checker = (*ipam.Checker)(nil)

// checker is the checker of a node whose kernel uses this.
func (l life) checker(uses kernel) *ipam.Checker {
	return ipam.NewChecker(ipam.Parts{
		Allocator: l.addresses, Kernel: uses, Endpoints: l.endpoints, Repairer: l,
	})
}

// kernel is an [ipam.Kernel] that is told what it uses.
type kernel []ipam.Use

func (k kernel) Uses() ([]ipam.Use, error) { return k, nil }

func (l life) examine(t *testing.T, only string) []doctor.Finding {
	t.Helper()
	findings, err := l.checker(nil).Examine(context.Background(), only)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(findings, func(a, b doctor.Finding) int { return strings.Compare(a.Subject, b.Subject) })
	return findings
}

func (l life) wantHealthy(t *testing.T) {
	t.Helper()
	if findings := l.examine(t, ""); len(findings) > 0 {
		t.Errorf("found %+v", findings)
	}
}

// handle is an attachment's, in the network of all specs of these tests.
func handle(attachment string) allocator.Handle {
	spec := endpointmanagertest.Spec(attachment)
	return allocator.NewHandle(spec.Network, spec.Attachment)
}

func ipv4(text string) endpoint.Addresses {
	return endpoint.Addresses{IPv4: netip.MustParseAddr(text)}
}

func TestCheckerConformance(t *testing.T) {
	doctortest.TestChecker(t, func(t *testing.T) doctor.Checker {
		l := begin(t, t.TempDir())
		l.start(t)
		l.add(t, "c1:eth0")
		l.add(t, "c2:eth0")
		l.addresses.Release(handle("c1:eth0"))
		if err := l.addresses.Adopt(allocator.Allocation{Owner: handle("gone:eth0"), Pool: allocator.DefaultPool, Addresses: ipv4("10.0.0.6")}); err != nil {
			t.Fatal(err)
		}
		return l.checker(nil)
	})
}

func TestDisagreementsAreFoundAndRepaired(t *testing.T) {
	rows := []struct {
		name, kind, subject string
		endpoint            string // "" when it is about none
		do                  func(l life)
		manual              bool
	}{
		{"an address of nobody", "address-orphan", "[10.0.0.6] of gone:eth0", "", func(l life) {
			_ = l.addresses.Adopt(allocator.Allocation{Owner: handle("gone:eth0"), Pool: allocator.DefaultPool, Addresses: ipv4("10.0.0.6")})
		}, false},
		{"an endpoint without its address", "address-missing", "10.0.0.2 of endpoint 1", "c1:eth0", func(l life) {
			l.addresses.Release(handle("c1:eth0"))
		}, false},
		{"an address that is another's", "address-differs", "10.0.0.2 of endpoint 1", "c1:eth0", func(l life) {
			l.addresses.Release(handle("c1:eth0"))
			_ = l.addresses.Adopt(allocator.Allocation{Owner: "c1", Addresses: ipv4("10.0.0.2")})
		}, true},
		{"another address", "address-differs", "endpoint 1", "c1:eth0", func(l life) {
			l.addresses.Release(handle("c1:eth0"))
			_ = l.addresses.Adopt(allocator.Allocation{Owner: handle("c1:eth0"), Addresses: ipv4("10.0.0.5")})
		}, true},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := begin(t, t.TempDir())
				l.start(t)
				l.add(t, "c1:eth0")
				l.wantHealthy(t)
				row.do(l)
				findings := l.examine(t, "")
				if len(findings) != 1 || findings[0].Kind != row.kind || findings[0].Subject != row.subject || (findings[0].Repair == nil) != row.manual {
					t.Fatalf("found %+v, want %s: %s", findings, row.kind, row.subject)
				}
				if got := l.examine(t, "c1:eth0"); (len(got) == 1) != (row.endpoint != "") {
					t.Errorf("for the attachment alone: found %+v", got)
				}
				if row.manual {
					return
				}
				if err := findings[0].Repair(t.Context()); err != nil {
					t.Error(err)
				}
				l.wantHealthy(t)
			})
		})
	}
}

func TestReleaseAfterRepeatedAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, t.TempDir())
		l.start(t)
		orphan := allocator.Allocation{Owner: handle("c1:eth0"), Pool: allocator.DefaultPool, Addresses: ipv4("10.0.0.6")}
		if err := l.addresses.Adopt(orphan); err != nil {
			t.Fatal(err)
		}
		findings := l.examine(t, "")
		l.add(t, "c1:eth0")
		if err := findings[0].Repair(t.Context()); err != nil {
			t.Error(err)
		}
		l.wantHealthy(t)
		listed := l.addresses.List()[0]
		if _, err := allocator.NewSource(l.addresses, nil).Allocate(t.Context(), allocator.Request{Owner: handle("c1:eth0")}); err != nil {
			t.Error(err)
		}
		if l.addresses.ReleaseListed(listed) {
			t.Error("an old list released what was asked for since")
		}
		l.wantHealthy(t)
	})
}

func TestExamineDuringFailedDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t, t.TempDir())
		l.start(t)
		l.add(t, "c1:eth0")
		l.datapath.Fail("detach", 1, errKernel)
		l.del("c1:eth0")
		l.wantHealthy(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		l.wantHealthy(t)
	})
}

func TestExamineEndpointOutsidePools(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := begin(t, dir)
		l.start(t)
		if err := l.foreign(t, "x:eth0", "192.0.2.7"); err != nil {
			t.Fatal(err)
		}
		l.wantHealthy(t)
		want := []capacity.Resource{{Name: "addresses/default/ipv4", Used: 0, Capacity: 5, Reserve: 1}}
		if diff := cmp.Diff(want, ipam.NewCapacitySource(l.addresses).Resources()); diff != "" {
			t.Errorf("resources (-want +got):\n%s", diff)
		}
	})
}

func TestWhatRestsIsNotThereForTheNextADD(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := ipam.DefaultConfig()
		cfg.PodCIDRs = []string{"10.0.0.0/29", "10.0.1.0/30", "fd00::/126"}
		a, err := ipam.New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, owner := range []allocator.Handle{"c1:eth0", "c2:eth0"} {
			if _, err := allocator.NewSource(a, nil).Allocate(t.Context(), allocator.Request{Owner: owner}); err != nil {
				t.Fatal(err)
			}
		}
		a.Release("c1:eth0")
		want := []capacity.Resource{
			{Name: "addresses/default/ipv4", Used: 1, Quarantined: 1, Capacity: 6, Reserve: 1},
			{Name: "addresses/default/ipv6", Used: 1, Quarantined: 1, Capacity: 2, Reserve: 1},
		}
		if diff := cmp.Diff(want, ipam.NewCapacitySource(a).Resources()); diff != "" {
			t.Errorf("resources (-want +got):\n%s", diff)
		}
		if _, err := allocator.NewSource(a, nil).Allocate(t.Context(), allocator.Request{Owner: "c3:eth0"}); err == nil {
			t.Error("there was an address")
		}
		time.Sleep(cfg.Quarantine)
		if got := ipam.NewCapacitySource(a).Resources()[1]; got.Used != 1 || got.Quarantined != 0 {
			t.Errorf("%+v after the quarantine, want 1 used and none in quarantine", got)
		}
	})
}
