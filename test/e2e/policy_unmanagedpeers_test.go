package e2e

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/testutil"
)

// TestUnmanaged: an address of another node's pods that has no record in the store opens connections to a restricted
// pod and to an unrestricted one. They are refused or let in as configured, and counted where a policy decides.
func TestUnmanaged(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		flags []string
		pass  bool
	}{"denied": {[]string{"--metrics-address=" + metricsAddress}, false}, "passed": {[]string{"--policy-allow-unmanaged", "--metrics-address=" + metricsAddress}, true}} {
		t.Run(name, func(t *testing.T) {
			c := newNodes(t, testutil.NewLAN(t), 2, row.flags...)
			one, two := c.nodes[0], c.nodes[1]
			db, free := one.labelled("db", "db"), one.labelled("free", "free")
			c.waitForMesh([]pod{db, free})
			one.knows(1) // its answers to the stranger need a route
			one.applyPolicy("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: db, namespace: shop}\nspec: {podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress]}\n")
			stranger := netip.MustParseAddr("10.100.2.200")
			err := two.node.Do(func() error {
				lo, err := netlink.LinkByName("lo")
				if err != nil {
					return err
				}
				return netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: stranger.AsSlice(), Mask: net.CIDRMask(32, 32)}})
			})
			if err != nil {
				t.Fatal(err)
			}
			connects := func(to pod) error {
				listener := to.Listen(t, netip.AddrPortFrom(to.ipv4, 0))
				defer listener.Close()
				return two.node.Do(func() error {
					dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: stranger.AsSlice()}, Timeout: time.Second}
					conn, err := dialer.Dial("tcp", listener.Addr().String())
					if err == nil {
						err = conn.Close()
					}
					return err
				})
			}
			if err := connects(free); err != nil {
				t.Errorf("to a pod that no policy restricts: %v", err)
			}
			if u := one.status().Datapath.Unmanaged; u != nil {
				t.Errorf("before a policy has decided: %+v", u)
			}
			err = connects(db)
			if (err == nil) != row.pass {
				t.Errorf("to a restricted pod: %v, want success %t", err, row.pass)
			}
			u := one.status().Datapath.Unmanaged
			dropped := float64(one.drops(db)["policy-unmanaged"])
			if row.pass {
				if u == nil || *u != (v1.Unmanaged{Passed: 1}) || dropped != 0 {
					t.Errorf("counted %+v and %g packets dropped, want 1 passed", u, dropped)
				}
			} else if u == nil || u.Passed != 0 || u.Denied == 0 || float64(u.Denied) != dropped {
				t.Errorf("counted %+v and %g packets dropped, want as many denied", u, dropped)
			}
			one.expectAtLeast(map[string]float64{
				`porin_datapath_unmanaged_total{decision="passed"}`: float64(u.Passed), `porin_datapath_unmanaged_total{decision="denied"}`: float64(u.Denied),
				`porin_datapath_drops_total{reason="policy-unmanaged"}`: dropped,
			})
			if out, err := one.porin("status"); err != nil || !strings.Contains(out, "Unmanaged:") {
				t.Errorf("porin status: %v\n%s", err, out)
			}
			one.agrees()
		})
	}
}
