package ipam

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/testutil"
)

// connection is a tracked connection over UDP. Its answers come from and go to other addresses than those that it is
// sent to and from where addresses are translated.
type connection struct{ from, to, answersFrom, answersTo string }

func (c connection) track(tb testing.TB, port uint16) {
	tb.Helper()
	ip := func(text string) net.IP { return netip.MustParseAddr(text).AsSlice() }
	flow := &netlink.ConntrackFlow{
		FamilyType: unix.AF_INET,
		Forward:    netlink.IPTuple{SrcIP: ip(c.from), DstIP: ip(c.to), Protocol: unix.IPPROTO_UDP, SrcPort: port, DstPort: 53},
		Reverse:    netlink.IPTuple{SrcIP: ip(c.answersFrom), DstIP: ip(c.answersTo), Protocol: unix.IPPROTO_UDP, SrcPort: 53, DstPort: port},
		TimeOut:    600,
	}
	if netip.MustParseAddr(c.from).Is6() {
		flow.FamilyType = unix.AF_INET6
	}
	if err := netlink.ConntrackCreate(netlink.ConntrackTable, netlink.InetFamily(flow.FamilyType), flow); err != nil {
		tb.Fatalf("track %+v: %v", c, err)
	}
}

// tracked lists the connections that there are.
func tracked(tb testing.TB) (list []connection) {
	tb.Helper()
	for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		if err != nil {
			tb.Fatal(err)
		}
		for _, f := range flows {
			if f.Forward.Protocol == unix.IPPROTO_UDP {
				list = append(list, connection{f.Forward.SrcIP.String(), f.Forward.DstIP.String(), f.Reverse.SrcIP.String(), f.Reverse.DstIP.String()})
			}
		}
	}
	slices.SortFunc(list, func(a, b connection) int { return bytes.Compare([]byte(fmt.Sprint(a)), []byte(fmt.Sprint(b))) })
	return list
}

func TestConntrackForget(t *testing.T) {
	ns := testutil.NetNS(t)
	gone := []connection{
		{"10.0.0.2", "198.51.100.7", "198.51.100.7", "192.0.2.1"}, // it began one, masqueraded
		{"10.0.0.9", "10.0.0.2", "10.0.0.2", "10.0.0.9"},          // it was called
		{"10.0.0.9", "10.96.0.10", "10.0.0.2", "10.0.0.9"},        // by way of a service
		{"198.51.100.7", "192.0.2.1", "10.0.0.2", "10.0.0.1"},     // by way of a host port, with the source translated, too
		{"fd00::2", "2001:db8::7", "2001:db8::7", "2001:db8::1"},
		{"fd00::9", "fd96::10", "fd00::2", "fd00::9"},
	}
	stay := []connection{
		{"10.0.0.9", "10.96.0.10", "10.0.0.3", "10.0.0.9"},
		{"10.0.0.9", "198.51.100.7", "198.51.100.7", "192.0.2.1"},
		{"fd00::9", "fd00::3", "fd00::3", "fd00::9"},
		{"fd00::9", "fd96::10", "fd00::3", "fd00::9"},
	}
	err := ns.Do(func() error {
		for i, c := range slices.Concat(gone, stay) {
			c.track(t, uint16(40000+i))
		}
		released := []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("fd00::2"), netip.MustParseAddr("10.0.0.77")}
		for range 2 { // the second time nothing is left to delete
			if err := NewConntrack(slog.New(slog.DiscardHandler)).DeleteConnections(released); err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(stay, tracked(t), cmp.AllowUnexported(connection{})); diff != "" {
				t.Errorf("connections that are tracked (-want +got):\n%s", diff)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestConntrackUnsupported: a kernel that cannot do it is named once, and is no error.
func TestConntrackUnsupported(t *testing.T) {
	var log bytes.Buffer
	c := NewConntrack(slog.New(slog.NewTextHandler(&log, nil)))
	for err, want := range map[error]bool{unix.EINVAL: true, unix.EPROTONOSUPPORT: true, unix.EPERM: false, nil: false} {
		if got := c.isUnsupported(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
	if got := bytes.Count(log.Bytes(), []byte("level=INFO")); got != 1 {
		t.Errorf("named %d times, want once: %s", got, log.String())
	}
}

// inNamespace is a [ConnectionCleaner] of another namespace.
type inNamespace struct {
	*testutil.Namespace
	*Conntrack
}

func (n inNamespace) DeleteConnections(addrs []netip.Addr) error {
	return n.Do(func() error { return n.Conntrack.DeleteConnections(addrs) })
}

// BenchmarkReleaseAmongConnections is what a DEL has of it on a machine with 100,000 tracked connections, one each 10
// ms.
func BenchmarkReleaseAmongConnections(b *testing.B) {
	ns := testutil.NetNS(b)
	if err := ns.Do(func() error { trackMany(b, 0, 100_000); return nil }); err != nil {
		b.Fatal(err)
	}
	cfg := DefaultConfig()
	cfg.PodCIDRs = []string{"10.0.0.0/16"}
	a, err := New(cfg, nil)
	if err != nil {
		b.Fatal(err)
	}
	c := NewCleaner(a, inNamespace{ns, NewConntrack(slog.New(slog.DiscardHandler))}, new(CleanFailures), slog.New(slog.DiscardHandler))
	c.Task().Start(nil)
	defer func() { _ = c.Task().Stop(context.Background()) }()
	var took []time.Duration
	for b.Loop() {
		if _, err := allocator.NewSource(a, nil).Allocate(b.Context(), allocator.Request{Owner: "c1"}); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		a.Release("c1")
		took = append(took, time.Since(began))
		time.Sleep(10 * time.Millisecond)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "ns-median")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "ns-p99")
}

// trackMany tracks connections of these numbers, each of an address of its own.
func trackMany(tb testing.TB, from, to int) {
	for i := from; i < to; i++ {
		addr := netip.AddrFrom4([4]byte{10, byte(1 + i>>16), byte(i >> 8), byte(i)}).String()
		connection{addr, "198.51.100.7", "198.51.100.7", addr}.track(tb, 40000)
	}
}

// BenchmarkConntrackForget deletes the connections of addresses that have none, among many connections of others.
func BenchmarkConntrackForget(b *testing.B) {
	ns := testutil.NetNS(b)
	err := ns.Do(func() error {
		c, there := NewConntrack(slog.New(slog.DiscardHandler)), 0
		for _, connections := range []int{0, 1000, 100_000} {
			trackMany(b, there, connections)
			there = connections
			b.Run(fmt.Sprintf("connections=%d", connections), func(b *testing.B) {
				b.ReportAllocs()
				if err := ns.Do(func() error {
					for b.Loop() {
						if err := c.DeleteConnections([]netip.Addr{netip.MustParseAddr("10.0.0.2")}); err != nil {
							return err
						}
					}
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			})
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
