package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/node/tunnel"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/testutil"
)

// strict makes the kernel of a node refuse packets from any interface but the one for the replies.
func strict(t *testing.T, n *testutil.Node) {
	t.Helper()
	for _, name := range []string{"all", "default", "eth0"} {
		n.Sysctl(t, "net/ipv4/conf/"+name+"/rp_filter", "1")
	}
}

// newTunnels starts nodes that the network routes between, and which knows nothing of pods.
func newTunnels(t *testing.T, nodes int, flags ...string) *nodeGroup {
	t.Helper()
	fabric := testutil.NewFabric(t)
	c := newNodes(t, fabric, 0)
	for range nodes {
		r := c.join(t, fabric, append([]string{"--routing=vxlan", "--metrics-address=" + metricsAddress}, flags...)...)
		strict(t, r.node)
	}
	return c
}

// reach are the ways to the blocks of the other nodes.
func (r *rig) reach() (ways []string) {
	r.Helper()
	for _, p := range r.peers() {
		for _, b := range p.Blocks {
			if b.Error != "" {
				ways = append(ways, b.Error)
			}
			ways = append(ways, b.Reach)
		}
	}
	slices.Sort(ways)
	return slices.Compact(ways)
}

// TestVXLAN has pods of all nodes reach each other over a network that routes between the nodes, and knows nothing of
// pods.
func TestVXLAN(t *testing.T) {
	for _, mode := range testutil.Sample(ipamModes...) {
		t.Run(mode.name, func(t *testing.T) {
			c := newTunnels(t, 3, mode.flags...)
			var pods []pod
			for _, r := range c.nodes {
				pods = append(pods, r.pod())
			}
			c.waitForMesh(pods)
			for _, r := range c.nodes {
				r.agrees()
				if ways := r.reach(); !slices.Equal(ways, []string{"tunnel"}) {
					t.Errorf("%s reaches the others by %q, want tunnels", r.node.Name, ways)
				}
			}
		})
	}
}

// TestVXLANMixedFamilies has packets that are too long for one peer, which is reached by IPv6, and not for others.
func TestVXLANMixedFamilies(t *testing.T) {
	t.Parallel()
	fabric := testutil.NewFabric(t)
	c := newNodes(t, fabric, 0)
	one, two := fabric.NewNode(t), fabric.NewNode(t)
	if err := two.Netlink(t).AddrDel(two.Link(t, "eth0"), testutil.Address(netip.PrefixFrom(two.IPv4, 32))); err != nil {
		t.Fatal(err)
	}
	for _, n := range []*testutil.Node{one, two} {
		c.nodes = append(c.nodes, c.api.rigOn(n, "--routing=vxlan"))
	}
	a, b := c.nodes[0].pod(), c.nodes[1].pod()
	trackConnections(t, one)
	const length, least = 1440, 1430 // of packets; what fits by IPv6
	if mtu := a.Link(t, "eth0").Attrs().MTU; mtu < length {
		t.Fatalf("the pod's MTU is %d, want more than %d", mtu, length)
	}
	for headers, addr := range map[int]netip.Addr{20 + 8: b.ipv4, 40 + 8: b.ipv6} {
		c.waitForPing(a.Namespace, addr)
		to := netip.AddrPortFrom(addr, backendPort)
		respond(t, b.Namespace, "b", to)
		conn, err := openDialog(a.Namespace, "udp", 0, to, answerTime)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		testutil.Eventually(t, func() error { // the pod learns of it by its first packet
			_, err := conn.askWithin(strings.Repeat("x", length-headers-1), unreachable)
			return err
		})
		if mtu := pathMTU(t, conn); mtu != least {
			t.Errorf("the MTU of the way to %s is %d, want %d", addr, mtu, least)
		}
	}
}

// pathMTU is what the pod knows of the way to the other end.
func pathMTU(t *testing.T, conn *dialog) (mtu int) {
	t.Helper()
	socket, err := conn.Conn.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	level, option := unix.IPPROTO_IP, unix.IP_MTU
	if conn.to().Addr().Is6() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU
	}
	if controlErr := socket.Control(func(fd uintptr) { mtu, err = unix.GetsockoptInt(int(fd), level, option) }); errors.Join(controlErr, err) != nil {
		t.Fatal(controlErr, err)
	}
	return mtu
}

// TestVXLANOuterFamilies has nodes with addresses of one family only carry both of their pods.
func TestVXLANOuterFamilies(t *testing.T) {
	t.Parallel()
	for name, addrs := range map[string]func(n *testutil.Node) string{
		"IPv4": func(n *testutil.Node) string { return n.IPv4.String() },
		"IPv6": func(n *testutil.Node) string { return n.IPv6.String() },
	} {
		t.Run(name, func(t *testing.T) {
			fabric := testutil.NewFabric(t)
			c := newNodes(t, fabric, 0)
			var pods []pod
			for range 2 {
				n := fabric.NewNode(t)
				for _, a := range []netip.Addr{n.IPv4, n.IPv6} {
					if a.String() != addrs(n) {
						if err := n.Netlink(t).AddrDel(n.Link(t, "eth0"), testutil.Address(netip.PrefixFrom(a, a.BitLen()))); err != nil {
							t.Fatal(err)
						}
					}
				}
				r := c.api.rigOn(n, "--routing=vxlan")
				strict(t, n)
				c.nodes = append(c.nodes, r)
				pods = append(pods, r.pod())
			}
			for i, from := range pods {
				c.waitForPing(from.Namespace, pods[1-i].ipv4)
				c.waitForPing(from.Namespace, pods[1-i].ipv6)
			}
			want := 1450
			if name == "IPv6" {
				want = 1430
			}
			for _, r := range c.nodes {
				if mtu := r.node.Link(t, tunnel.Device).Attrs().MTU; mtu != want {
					t.Errorf("%s: the device's MTU is %d, want %d", r.node.Name, mtu, want)
				}
				if mtu := r.pod().Link(t, "eth0").Attrs().MTU; mtu != want {
					t.Errorf("%s: a pod's MTU is %d, want %d", r.node.Name, mtu, want)
				}
				r.agrees()
			}
		})
	}
}

// TestVXLANRestarts restarts agents while pods of two nodes talk: no packet is lost, and neither device nor addresses
// change.
func TestVXLANRestarts(t *testing.T) {
	t.Parallel()
	for _, mode := range testutil.Sample(ipamModes...) {
		t.Run(mode.name, func(t *testing.T) {
			c := newTunnels(t, 2, mode.flags...)
			one, two := c.nodes[0], c.nodes[1]
			a, b := one.pod(), two.pod()
			c.waitForMesh([]pod{a, b})
			before := one.tunnelState()
			lost := c.talk(a, b)
			for _, r := range c.nodes {
				for _, end := range []func(){func() { r.agent.Kill(t) }, func() { r.agent.Stop(t) }} {
					end()
					r.agent.Start(t)
					testutil.Eventually(t, func() error {
						if ways := r.reach(); !slices.Equal(ways, []string{"tunnel"}) {
							return fmt.Errorf("it reaches the others by %q", ways)
						}
						return nil
					})
				}
			}
			if asked, n := lost(); n > 0 {
				t.Errorf("%d of %d requests were not answered", n, asked)
			}
			if after := one.tunnelState(); after != before {
				t.Errorf("the tunnel is %s, and was %s", after, before)
			}
			for _, r := range c.nodes {
				r.agrees()
			}
		})
	}
}

// tunnelState is the device with its addresses.
func (r *rig) tunnelState() string {
	r.Helper()
	d := r.node.Link(r, tunnel.Device)
	addrs, err := r.node.Addrs(d.Attrs().Index)
	if err != nil {
		r.Fatal(err)
	}
	var texts []string
	for _, a := range addrs {
		texts = append(texts, a.IP.String())
	}
	slices.Sort(texts)
	return fmt.Sprintf("%d %v", d.Attrs().Index, texts)
}

// TestVXLANLarge sends what does not fit by the tunnel: streams in segments of the largest size, datagrams in
// fragments, and datagrams that must not be cut, which the node answers.
func TestVXLANLarge(t *testing.T) {
	t.Parallel()
	c := newTunnels(t, 2)
	one, two := c.nodes[0], c.nodes[1]
	a, b := one.pod(), two.pod()
	c.waitForMesh([]pod{a, b})
	for _, addr := range []netip.Addr{b.ipv4, b.ipv6} {
		sent, got, err := stream(t, a.Namespace, b.Namespace, addr)
		if err != nil || sent != got {
			t.Errorf("stream to %s: %v, the same bytes %t", addr, err, sent == got)
		}
		if err := datagram(t, a.Namespace, b.Namespace, addr, 8000); err != nil {
			t.Errorf("a datagram of 8000 bytes to %s: %v", addr, err)
		}
	}
	// A pod that has an MTU of before: the node says what fits.
	if err := a.Netlink(t).LinkSetMTU(a.Link(t, "eth0"), 1500); err != nil {
		t.Fatal(err)
	}
	if err := one.node.Netlink(t).LinkSetMTU(one.node.HostLink(t, a.Container), 1500); err != nil {
		t.Fatal(err)
	}
	for _, addr := range []netip.Addr{b.ipv4, b.ipv6} {
		testutil.Eventually(t, func() error { return learnsMTU(a.Namespace, netip.AddrPortFrom(addr, 9), 1450) })
		sent, got, err := stream(t, a.Namespace, b.Namespace, addr)
		if err != nil || sent != got {
			t.Errorf("stream to %s: %v, the same bytes %t", addr, err, sent == got)
		}
	}
}

// learnsMTU sends a datagram that must not be cut, and wants the path to have that MTU.
func learnsMTU(from *testutil.Namespace, to netip.AddrPort, want int) error {
	return from.Do(func() error {
		family, level, discover, do, get := unix.AF_INET, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_MTU
		var sa unix.Sockaddr
		if to.Addr().Is4() {
			sa = &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())}
		} else {
			family, level, discover, do, get = unix.AF_INET6, unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_MTU
			sa = &unix.SockaddrInet6{Addr: to.Addr().As16(), Port: int(to.Port())}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		if err := errors.Join(unix.SetsockoptInt(fd, level, discover, do), unix.Connect(fd, sa)); err != nil {
			return err
		}
		_, _ = unix.Write(fd, make([]byte, 1440))
		mtu, err := unix.GetsockoptInt(fd, level, get)
		if err == nil && mtu != want {
			err = fmt.Errorf("the path to %s has an MTU of %d, want %d", to, mtu, want)
		}
		return err
	})
}

// TestVXLANUplinkMTU has device and new pods follow the uplink's MTU.
func TestVXLANUplinkMTU(t *testing.T) {
	t.Parallel()
	c := newTunnels(t, 2)
	one := c.nodes[0]
	a, b := one.pod(), c.nodes[1].pod()
	c.waitForMesh([]pod{a, b})
	for _, mtu := range []int{1400, 9000, 1500} {
		if err := one.node.Netlink(t).LinkSetMTU(one.node.Link(t, "eth0"), mtu); err != nil {
			t.Fatal(err)
		}
		testutil.Eventually(t, func() error {
			if got := one.node.Link(t, tunnel.Device).Attrs().MTU; got != mtu-50 {
				return fmt.Errorf("the device's MTU is %d, want %d", got, mtu-50)
			}
			return nil
		})
		testutil.Eventually(t, func() error {
			if got := one.pod().Link(t, "eth0").Attrs().MTU; got != mtu-50 {
				return fmt.Errorf("a pod's MTU is %d, want %d", got, mtu-50)
			}
			return nil
		})
		c.waitForMesh([]pod{a, b})
	}
}

// TestVXLANRepair removes parts of the tunnel.
func TestVXLANRepair(t *testing.T) {
	t.Parallel()
	testutil.NeedPrograms(t, "nft")
	c := newTunnels(t, 2)
	one := c.nodes[0]
	a, b := one.pod(), c.nodes[1].pod()
	c.waitForMesh([]pod{a, b})
	before := one.tunnelState()
	device := func() netlink.Link { return one.node.Link(t, tunnel.Device) }
	for name, damage := range map[string]func() error{
		"device": func() error { return one.node.Netlink(t).LinkDel(device()) },
		"down":   func() error { return one.node.Netlink(t).LinkSetDown(device()) },
		"address": func() error {
			return one.node.Netlink(t).AddrDel(device(), &netlink.Addr{IPNet: nl.HostNet(one.tunnelAddress(false))})
		},
		"rules": func() error {
			return one.node.Do(func() error { return exec.Command("nft", "delete", "table", "inet", "porin-tunnel").Run() })
		},
	} {
		if err := damage(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.waitForMesh([]pod{a, b})
		testutil.Eventually(t, func() error {
			if after := one.tunnelState(); strings.SplitN(after, " ", 2)[1] != strings.SplitN(before, " ", 2)[1] {
				return fmt.Errorf("%s: the tunnel is %s, and was %s", name, after, before)
			}
			return nil
		})
		testutil.Eventually(t, func() error {
			return one.node.Do(func() error { return exec.Command("nft", "list", "table", "inet", "porin-tunnel").Run() })
		})
	}
	one.agrees()
}

// tunnelAddress is the device's address of a family.
func (r *rig) tunnelAddress(six bool) (own netip.Addr) {
	r.Helper()
	testutil.Eventually(r, func() error { // the tunnel may receive before its device has addresses
		for _, addr := range r.status().Network.Tunnel.Addresses {
			if own = addr; addr.Is6() == six {
				return nil
			}
		}
		return errors.New("no such address of the tunnel")
	})
	return own
}

// TestVXLANModeSwitch starts agents in another mode, one after the other, while pods talk: few packets are lost, and
// all peers are reached in each state.
func TestVXLANModeSwitch(t *testing.T) {
	t.Parallel()
	for _, mode := range testutil.Sample(ipamModes...) {
		t.Run(mode.name, func(t *testing.T) {
			c := newNodes(t, testutil.NewLAN(t), 2, mode.flags...)
			one, two := c.nodes[0], c.nodes[1]
			for _, r := range c.nodes {
				strict(t, r.node)
			}
			a, b, local := one.pod(), two.pod(), one.pod()
			pods := []pod{a, b, local}
			c.waitForMesh(pods)
			for i, step := range []struct {
				rig     *rig
				routing string
				reach   string
			}{
				{one, "vxlan", "tunnel"}, {two, "vxlan", "tunnel"}, {one, "native", "tunnel"}, {two, "native", "route"},
			} {
				inside, across := c.talkAt(local, a, 7100+uint16(i)), c.talkAt(a, b, 7200+uint16(i))
				step.rig.agent.Stop(t)
				step.rig.configure(append(slices.Clone(mode.flags), "--routing="+step.routing)...)
				step.rig.agent.Start(t)
				for _, r := range c.nodes {
					testutil.Eventually(t, func() error {
						if ways := r.reach(); !slices.Equal(ways, []string{step.reach}) {
							return fmt.Errorf("%s reaches the other by %q, want %q", r.node.Name, ways, step.reach)
						}
						return nil
					})
				}
				for _, from := range pods[1:] {
					c.waitForPing(from.Namespace, a.ipv4)
					c.waitForPing(from.Namespace, a.ipv6)
				}
				for _, r := range c.nodes {
					c.connects(a, r.node)
					c.connects(b, r.node)
				}
				if asked, lost := inside(); lost > 0 {
					t.Errorf("%s in mode %s: %d of %d requests on the node were lost", step.rig.node.Name, step.routing, lost, asked)
				}
				if asked, lost := across(); lost > 4 {
					t.Errorf("%s in mode %s: %d of %d requests were lost", step.rig.node.Name, step.routing, lost, asked)
				} else {
					t.Logf("%s in mode %s: %d of %d requests were lost", step.rig.node.Name, step.routing, lost, asked)
				}
				for _, r := range c.nodes {
					r.agrees()
				}
			}
		})
	}
}

// connects wants the pod to reach the node's own addresses by new connections: earlier connections keep their address.
func (c *nodeGroup) connects(from pod, to *testutil.Node) {
	c.Helper()
	for _, addr := range []netip.Addr{to.IPv4, to.IPv6} {
		listener := to.Listen(c, netip.AddrPortFrom(addr, 0))
		testutil.Eventually(c, func() error {
			conn, err := from.Dial(listener.Addr().(*net.TCPAddr).AddrPort(), time.Second)
			if err != nil {
				return fmt.Errorf("%s to %s: %w", from.ipv4, addr, err)
			}
			return conn.Close()
		})
		listener.Close()
	}
}
