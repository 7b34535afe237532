package tunnel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// TestFromTunnel sends packets as a hostile machine on the network would, by both outer families: only what a node
// sends of its own to this node's pods reaches the stack.
func TestFromTunnel(t *testing.T) {
	w := newWorld(t)
	w.apply(desired(here[0]))
	toDevice, toOther := ofDevice, []netip.Addr{addr("10.3.0.9"), addr("fd03::9")}
	pods, foreign, outside := []netip.Addr{addr("10.2.0.5"), addr("fd02::5")}, []netip.Addr{addr("10.3.0.5"), addr("fd03::5")}, []netip.Addr{addr("198.51.100.1"), addr("2001:db8:ffff::1")}
	own := []netip.Addr{addr("10.1.0.7"), addr("fd01::7")}
	var want uint64
	for outer := range here {
		for inner := range here {
			frame := func(src, dst []netip.Addr, text string) []byte { return w.inner(src[inner], dst[inner], text) }
			for _, row := range []struct {
				what    string
				from    []netip.Addr
				network uint32
				frame   []byte
				reason  string
			}{
				{"a pod of the node", peer, abi.TunnelNetwork, frame(pods, toDevice, "passes"), ""},
				{"the node itself", peer, abi.TunnelNetwork, frame(peer, toDevice, "passes"), ""},
				{"no node", stranger, abi.TunnelNetwork, frame(pods, toDevice, "x"), "unknown-node"},
				{"no node, with its own address", stranger, abi.TunnelNetwork, frame(stranger, toDevice, "x"), "unknown-node"},
				{"a node, for a pod of another", peer, abi.TunnelNetwork, frame(foreign, toDevice, "x"), "source"},
				{"a node, for another node", peer, abi.TunnelNetwork, frame(other, toDevice, "x"), "source"},
				{"a node, for a pod of this one", peer, abi.TunnelNetwork, frame(own, toDevice, "x"), "source"},
				{"a node, for this one", peer, abi.TunnelNetwork, frame(here, toDevice, "x"), "source"},
				{"a node, for the world outside", peer, abi.TunnelNetwork, frame(outside, toDevice, "x"), "source"},
				{"to a pod of another node", peer, abi.TunnelNetwork, frame(pods, toOther, "x"), "destination"},
				{"to the address of the node", peer, abi.TunnelNetwork, frame(pods, here, "x"), "destination"},
				{"to the outside", peer, abi.TunnelNetwork, frame(pods, outside, "x"), "destination"},
				{"another network", peer, abi.TunnelNetwork + 1, frame(pods, toDevice, "x"), "network"},
				{"network 0", peer, 0, frame(pods, toDevice, "x"), "network"},
				{"for everybody on the link", peer, abi.TunnelNetwork, mangle(frame(pods, toDevice, "x"), 0, 255, 255, 255, 255, 255, 255), "malformed"},
				{"a VLAN tag", peer, abi.TunnelNetwork, mangle(frame(pods, toDevice, "x"), 12, 0x81, 0), "malformed"},
				{"ARP", peer, abi.TunnelNetwork, mangle(frame(pods, toDevice, "x"), 12, 8, 6), "malformed"},
				{"truncated", peer, abi.TunnelNetwork, frame(pods, toDevice, "x")[:[]int{36, 56}[inner]], "malformed"},
				{"longer than it is", peer, abi.TunnelNetwork, mangle(frame(pods, toDevice, "x"), 16, 4, 0, 4, 0), "malformed"},
			} {
				before := w.drops()
				w.send(row.from[outer], row.network, row.frame)
				if row.reason == "" {
					w.receives(fmt.Sprintf("outer family %d, inner %d, %s", outer, inner, row.what), "passes")
					continue
				}
				want++
				testutil.Eventually(t, func() error {
					for reason, n := range w.drops() {
						if expected := before[reason]; reason == row.reason && n != expected+1 || reason != row.reason && n != expected {
							return fmt.Errorf("outer family %d, inner %d, %s: dropped for %s %d times, and %d before: want reason %s", outer, inner, row.what, reason, n, before[reason], row.reason)
						}
					}
					return nil
				})
			}
		}
	}
	w.send(peer[0], abi.TunnelNetwork, w.inner(addr("10.2.0.5"), ofDevice[0], "last"))
	w.receives("after all", "last") // and nothing that was dropped
	if want < 60 {
		t.Errorf("%d packets were to be dropped", want)
	}
}

// TestFromTunnelToDevice sends packets of a node to the address of the tunnel device, as the node port of a Service
// might: none passes.
func TestFromTunnelToDevice(t *testing.T) {
	w := newWorld(t)
	w.apply(desired(here[0]))
	for i, to := range ofDevice {
		route := testutil.GatewayRoute(w.remote.Link(t, "eth0").Attrs().Index, netip.PrefixFrom(to, to.BitLen()), here[i])
		if err := w.remote.Netlink(t).RouteAdd(route); err != nil {
			t.Fatal(err)
		}
		before := w.drops()["outer-destination"]
		w.sendTo(to, peer[i], abi.TunnelNetwork, w.inner(addr("10.2.0.5"), ofDevice[0], "forged"))
		testutil.Eventually(t, func() error {
			if n := w.drops()["outer-destination"]; n != before+1 {
				return fmt.Errorf("dropped %d packets to %s, want 1", n-before, to)
			}
			return nil
		})
	}
	w.send(peer[0], abi.TunnelNetwork, w.inner(addr("10.2.0.5"), ofDevice[0], "honest"))
	w.receives("after all", "honest")
}

func mangle(frame []byte, offset int, bytes ...byte) []byte {
	copy(frame[offset:], bytes)
	return frame
}

// TestToTunnel looks at what the node sends, by both outer families, and what it does not.
func TestToTunnel(t *testing.T) {
	for i, local := range here {
		t.Run(local.String(), func(t *testing.T) {
			w := newWorld(t)
			w.apply(desired(local))
			var c *net.IPConn // of packets with their UDP header
			err := w.remote.Do(func() (err error) {
				c, err = net.ListenIP([]string{"ip4:udp", "ip6:udp"}[i], &net.IPAddr{IP: peer[i].AsSlice()})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for _, to := range []netip.Addr{addr("10.2.0.5"), addr("fd02::5")} {
				w.write(to)
				buf := make([]byte, 2048)
				_ = c.SetReadDeadline(time.Now().Add(testutil.Patience))
				n, from, err := c.ReadFromIP(buf)
				if err != nil || n < 16 {
					t.Fatal(n, err)
				}
				if !from.IP.Equal(local.AsSlice()) {
					t.Errorf("the packet to %s is from %s, want %s", to, from, local)
				}
				if sum := binary.BigEndian.Uint16(buf[6:]); binary.BigEndian.Uint16(buf[2:]) != port || (sum == 0) != local.Is4() {
					t.Errorf("the packet to %s has the UDP header %x: want port %d, and a checksum by IPv6 alone (RFC 7348, section 5; RFC 8200, section 8.1)", to, buf[:8], port)
				}
				if network := binary.BigEndian.Uint32(buf[12:]) >> 8; network != abi.TunnelNetwork {
					t.Errorf("the packet to %s is of network %x, want %x", to, network, abi.TunnelNetwork)
				}
				packet := gopacket.NewPacket(buf[16:n], layers.LayerTypeEthernet, gopacket.Default)
				if ether := packet.LinkLayer(); ether.LinkFlow().Dst() != layers.NewMACEndpoint(MAC) || ether.LinkFlow().Src() == layers.NewMACEndpoint(MAC) {
					t.Errorf("the frame to %s goes %s, want one from somebody else to %s", to, ether.LinkFlow(), MAC)
				}
				src, _ := netip.AddrFromSlice(packet.NetworkLayer().NetworkFlow().Src().Raw())
				if src != ofDevice[0] && src != ofDevice[1] {
					t.Errorf("the inner packet to %s is from %s, want an address of the device", to, src)
				}
			}
			// No node has it, though there is a route.
			d := desired(local)
			delete(d.Owners, prefix("10.2.0.0/24"))
			if _, err := w.tunnel.Apply(d); err != nil {
				t.Fatal(err)
			}
			w.write(addr("10.2.0.5"))
			testutil.Eventually(t, func() error {
				sum, err := w.tunnel.Drops()
				if err == nil && sum.ToTunnel[abi.TunnelDropNoNode] == 0 {
					err = errors.New("nothing was dropped")
				}
				return err
			})
		})
	}
}

// write sends a datagram to a pod of another node.
func (w *world) write(to netip.Addr) {
	w.Helper()
	err := w.node.Do(func() error {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, 9)))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write([]byte("hello"))
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
}
