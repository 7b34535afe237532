package masquerade_test

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/node/masquerade"
	"porin.dev/porin/internal/testutil"
)

func TestOutside(t *testing.T) {
	w := newWorld(t)
	for six := range w.pod.addrs {
		if _, err := ask(w.pod.Namespace, "udp", w.outside.at(six), 10, unreachable); err == nil {
			t.Fatalf("%s: the outside knows a way to the pod", family(six))
		}
	}
	must(t, w.table.Apply(w.desired()))
	for six := range w.pod.addrs {
		t.Run(family(six), func(t *testing.T) {
			wantPeer(t, w.pod, w.outside.at(six), w.nodeAddr(six))
			if err := testutil.Ping(w.pod.Namespace, w.outside.addrs[six], testutil.Patience); err != nil {
				t.Error(err)
			}
		})
	}
	if n := w.table.Status().Connections; n < 6 {
		t.Errorf("%d connections are counted, want 6 and more", n)
	}
}

func TestFamilies(t *testing.T) {
	for families, want := range map[string][2]bool{
		masquerade.None: {}, masquerade.IPv4: {true, false}, masquerade.IPv6: {false, true}, masquerade.Both: {true, true},
	} {
		t.Run(families, func(t *testing.T) {
			w := newWorld(t)
			w.routed(t)
			must(t, w.table.Apply(w.desired())) // by the previous agent
			must(t, w.newTable(t, masquerade.Config{Families: families}).Apply(w.desired()))
			for six := range w.pod.addrs {
				peer := w.pod.addrs[six]
				if want[six] {
					peer = w.nodeAddr(six)
				}
				wantPeer(t, w.pod, w.outside.at(six), peer)
			}
		})
	}
}

// Where pods keep their addresses.
func TestKeepsAddress(t *testing.T) {
	for name, change := range map[string]func(w *world, d *masquerade.Desired) masquerade.Config{
		"inside": func(w *world, d *masquerade.Desired) masquerade.Config {
			d.Inside = append(d.Inside, netip.MustParsePrefix("203.0.112.0/22"), netip.MustParsePrefix("2001:db8::/32"))
			return masquerade.Config{Families: masquerade.Both}
		},
		"excluded": func(w *world, d *masquerade.Desired) masquerade.Config {
			return masquerade.Config{Families: masquerade.Both, Exclude: []string{"203.0.113.9/32", "2001:db8:99::/64"}}
		},
		"exempt pod": func(w *world, d *masquerade.Desired) masquerade.Config {
			d.Pods = w.pod.addrs[:]
			return masquerade.Config{Families: masquerade.Both}
		},
		"not of this node": func(w *world, d *masquerade.Desired) masquerade.Config {
			d.Sources = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd01::/64")}
			return masquerade.Config{Families: masquerade.Both}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.routed(t)
			desired := w.desired()
			cfg := change(w, &desired)
			must(t, w.newTable(t, cfg).Apply(desired))
			for six := range w.pod.addrs {
				wantPeer(t, w.pod, w.outside.at(six), w.pod.addrs[six])
			}
		})
	}
}

// Whoever connects to a pod gets answers from the pod's address.
func TestInbound(t *testing.T) {
	w := newWorld(t)
	w.routed(t)
	must(t, w.table.Apply(w.desired()))
	for six := range w.pod.addrs {
		wantPeer(t, w.outside, w.pod.at(six), w.outside.addrs[six])
		wantPeer(t, &end{Namespace: w.node.Namespace}, w.outside.at(six), w.nodeAddr(six))
	}
	if n := w.table.Status().Connections; n != 0 {
		t.Errorf("%d connections are masqueraded, want none", n)
	}
}

// A source that another program has chosen stays, whichever came first.
func TestOtherTranslation(t *testing.T) {
	others := map[string]func(t *testing.T, w *world){
		"nftables": func(t *testing.T, w *world) {
			w.rules(t, "table inet kube-proxy {\nchain nat-postrouting {\ntype nat hook postrouting priority 100;\n"+
				"ip daddr 203.0.113.9 snat ip to 198.51.100.77\nip6 daddr 2001:db8:99::9 snat ip6 to 2001:db8:77::7\n}\n}\n")
		},
		"iptables": func(t *testing.T, w *world) {
			w.rules(t, "*nat\n-A POSTROUTING -d 203.0.113.9 -j SNAT --to-source 198.51.100.77\nCOMMIT\n", "iptables-legacy-restore", "--wait")
			w.rules(t, "*nat\n-A POSTROUTING -d 2001:db8:99::9 -j SNAT --to-source 2001:db8:77::7\nCOMMIT\n", "ip6tables-legacy-restore", "--wait")
		},
	}
	chosen := [2]netip.Addr{netip.MustParseAddr("198.51.100.77"), netip.MustParseAddr("2001:db8:77::7")}
	for name, write := range others {
		for _, first := range []bool{false, true} {
			w := newWorld(t)
			if first {
				must(t, w.table.Apply(w.desired()))
			}
			write(t, w)
			if !first {
				must(t, w.table.Apply(w.desired()))
			}
			for six, addr := range chosen {
				must(t, w.node.Netlink(t).AddrAdd(testutil.LinkAt(1), testutil.Address(hostPrefix(addr)))) // so that answers end here
				uplink, err := w.node.Fabric.Netlink(t).LinkByName("node1")
				must(t, err)
				route := testutil.GatewayRoute(uplink.Attrs().Index, hostPrefix(addr), w.nodeAddr(six))
				must(t, w.node.Fabric.Netlink(t).RouteAdd(route))
				t.Logf("%s, masquerading first: %v", name, first)
				wantPeer(t, w.pod, w.outside.at(six), addr)
			}
		}
	}
}

// A destination that the node has translated counts as what it is.
func TestTranslatedDestination(t *testing.T) {
	w := newWorld(t)
	w.rules(t, "table inet kube-proxy {\nchain nat-prerouting {\ntype nat hook prerouting priority -100;\n"+
		"ip daddr 10.100.96.1 dnat ip to 203.0.113.9\nip6 daddr fd00:10:96::1 dnat ip6 to 2001:db8:99::9\n}\n}\n")
	must(t, w.table.Apply(w.desired()))
	for six, text := range []string{"10.100.96.1", "fd00:10:96::1"} {
		wantPeer(t, w.pod, netip.AddrPortFrom(netip.MustParseAddr(text), port), w.nodeAddr(six))
	}
}

// A router's errors about what it cannot pass on, and a host's, come back to the pod.
func TestErrorsComeBack(t *testing.T) {
	w := newWorld(t)
	must(t, w.table.Apply(w.desired()))
	for six := range w.pod.addrs {
		t.Run(family(six), func(t *testing.T) {
			if _, err := ask(w.pod.Namespace, "tcp", w.outside.at(six), 100_000, testutil.Patience); err != nil {
				t.Errorf("segments that are too large for a link beyond the node: %v", err)
			}
			to := netip.AddrPortFrom(w.outside.addrs[six], port+1)
			if _, err := ask(w.pod.Namespace, "udp", to, 10, testutil.Patience); !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("a closed port: %v, want its ICMP error", err)
			}
			wantTooBig(t, w, six)
		})
	}
}

// wantTooBig sends datagrams that must not be fragmented, until the kernel of the pod knows why they do not arrive.
func wantTooBig(t *testing.T, w *world, six int) {
	t.Helper()
	other := join(t, w.node.Fabric.Namespace, "beyond", [2]netip.Addr{netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("2001:db8:99::10")}, narrow)
	defer func() {
		link, err := w.node.Fabric.Netlink(t).LinkByName("beyond")
		must(t, err)
		must(t, w.node.Fabric.Netlink(t).LinkDel(link))
	}()
	var conn net.Conn
	must(t, w.pod.Do(func() (err error) {
		conn, err = net.Dial("udp", other.at(six).String())
		return err
	}))
	defer conn.Close()
	raw, err := conn.(*net.UDPConn).SyscallConn()
	must(t, err)
	level, discover, mtu, value := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_MTU, unix.IP_PMTUDISC_DO
	if six == 1 {
		level, discover, mtu, value = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_MTU, unix.IPV6_PMTUDISC_DO
	}
	must(t, raw.Control(func(fd uintptr) { must(t, unix.SetsockoptInt(int(fd), level, discover, value)) }))
	testutil.Eventually(t, func() error {
		_, _ = conn.Write(make([]byte, 1400)) // fails when it is known
		known := 0
		must(t, raw.Control(func(fd uintptr) { known, err = unix.GetsockoptInt(int(fd), level, mtu) }))
		if err == nil && known != narrow {
			err = errors.New("the pod does not know of the link's MTU")
		}
		return err
	})
}

// Pods that come from the same port to the same destination all get through.
func TestPortsAreChosenAtRandom(t *testing.T) {
	w := newWorld(t)
	must(t, w.table.Apply(w.desired()))
	var ports []uint16
	for range 8 {
		var conn net.Conn
		dialer := net.Dialer{LocalAddr: &net.UDPAddr{Port: 5555}}
		must(t, w.pod.Do(func() (err error) {
			conn, err = dialer.Dial("udp", w.outside.at(0).String())
			return err
		}))
		must(t, conn.SetDeadline(time.Now().Add(testutil.Patience)))
		_, err := conn.Write([]byte("x"))
		must(t, err)
		buf := make([]byte, 100)
		n, err := conn.Read(buf)
		must(t, err)
		conn.Close()
		peer, err := netip.ParseAddrPort(string(buf[:n-2]))
		must(t, err)
		ports = append(ports, peer.Port())
		w.rules(t, "", "conntrack", "-D", "-p", "udp")
	}
	slices.Sort(ports)
	if distinct := len(slices.Compact(slices.Clone(ports))); distinct < 6 || slices.Contains(ports, 5555) {
		t.Errorf("source ports %v, want them chosen at random", ports)
	}
}
