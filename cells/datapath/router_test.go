package datapath_test

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/endpoint"
)

// sysctl reads a value below /proc/sys/net of the node.
func (n *node) sysctl(t *testing.T, name string) string {
	t.Helper()
	var value []byte
	must(t, n.Do(func() (err error) {
		value, err = os.ReadFile("/proc/sys/net/" + name)
		return err
	}))
	return strings.TrimSpace(string(value))
}

func (n *node) wantSysctls(t *testing.T, want map[string]string) {
	t.Helper()
	for name, value := range want {
		if got := n.sysctl(t, name); got != value {
			t.Errorf("%s = %s, want %s", name, got, value)
		}
	}
}

func TestStartForwardsIPv4(t *testing.T) {
	n := newNode(t)
	n.wantSysctls(t, map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "0"})
}

func TestForwardIPv4Endpoint(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, 1)
	p.endpoint.Addresses.IPv6 = endpoint.Addresses{}.IPv6
	n.attach(t, p)
	n.wantSysctls(t, map[string]string{
		"ipv6/conf/all/forwarding": "0", "ipv6/conf/lo/accept_ra": "1", "ipv6/conf/" + p.endpoint.Host.Name + "/accept_ra": "0",
	})
}

// interfaces of a node whose administrator has set accept_ra, and what it is when the node is an IPv6 router.
var interfaces = []struct {
	name, accept, forwarding, want string
}{
	{"ra0", "0", "0", "0"},
	{"ra1", "1", "0", "2"},
	{"ra2", "2", "0", "2"},
	{"vlan.7", "1", "0", "2"},
	{"forwards", "1", "1", "1"}, // it accepts none before, either
}

func TestForwardFirstIPv6Endpoint(t *testing.T) {
	for _, operation := range []string{"attach", "restore"} {
		t.Run(operation, func(t *testing.T) {
			n := newNode(t)
			want := map[string]string{"ipv6/conf/all/forwarding": "1", "ipv6/conf/all/accept_ra": "1", "ipv6/conf/default/accept_ra": "1"}
			for _, i := range interfaces {
				must(t, n.Do(func() error {
					link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: i.name}}
					return netlink.LinkAdd(link)
				}))
				n.Sysctl(t, "net/ipv6/conf/"+i.name+"/accept_ra", i.accept)
				n.Sysctl(t, "net/ipv6/conf/"+i.name+"/forwarding", i.forwarding)
				want["ipv6/conf/"+i.name+"/accept_ra"] = i.want
			}
			p := n.newPod(t, 1)
			if operation == "attach" {
				n.attach(t, p)
			} else {
				_, err := n.step.Restore(context.Background(), p.endpoint)
				must(t, err)
			}
			want["ipv6/conf/"+p.endpoint.Host.Name+"/accept_ra"] = "0"
			n.wantSysctls(t, want)
		})
	}
}

func TestAttachIgnoresAdvertisements(t *testing.T) {
	n := newNode(t)
	n.Sysctl(t, "net/ipv6/conf/default/accept_ra", "2")
	p := n.newPod(t, 1)
	n.attach(t, p)
	n.wantSysctls(t, map[string]string{
		"ipv6/conf/default/accept_ra": "2", "ipv6/conf/" + p.endpoint.Host.Name + "/accept_ra": "0",
	})
}

// An administrator who has made the node an IPv6 router has decided about accept_ra, too.
func TestForwardOnIPv6Router(t *testing.T) {
	n := newNode(t)
	n.Sysctl(t, "net/ipv6/conf/all/forwarding", "1")
	n.attach(t, n.newPod(t, 1))
	n.wantSysctls(t, map[string]string{"ipv6/conf/all/forwarding": "1", "ipv6/conf/lo/accept_ra": "1"})
}

func TestExamineForwarding(t *testing.T) {
	c, _ := newCheckedNode(t, 0)
	c.wantHealthy(t) // IPv6 forwarding is off, and not needed
	p := c.newPod(t, 1)
	p.endpoint.State = endpoint.Ready
	c.attach(t, p)
	c.Set(p.endpoint)
	c.wantHealthy(t)
	c.Sysctl(t, "net/ipv4/ip_forward", "0")
	c.Sysctl(t, "net/ipv6/conf/all/forwarding", "0")
	c.Sysctl(t, "net/ipv6/conf/lo/accept_ra", "1")
	findings := c.examine(t, "")
	if got, want := kindsOf(findings), "forwarding-off forwarding-off"; got != want {
		t.Fatalf("found %q, want %q", got, want)
	}
	repairAll(t, findings)
	c.wantHealthy(t)
	c.wantSysctls(t, map[string]string{"ipv6/conf/lo/accept_ra": "2"}) // before forwarding, here too
}
