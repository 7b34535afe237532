package ipam

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// track has the kernel track a connection over UDP, whose answers come from and go to the addresses given last: others
// than those that it is sent to and from, where addresses are translated.
func track(t testing.TB, from, to, answersFrom, answersTo string) {
	t.Helper()
	first := netip.MustParseAddr(from)
	body := tuple(nil, ctTupleOrig, first, netip.MustParseAddr(to), 40000, 53)
	body = tuple(body, ctTupleReply, netip.MustParseAddr(answersFrom), netip.MustParseAddr(answersTo), 53, 40000)
	body = attr(body, 7, []byte{0, 0, 0, 60}) // CTA_TIMEOUT, seconds in network order
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	family := byte(unix.AF_INET)
	if first.Is6() {
		family = unix.AF_INET6
	}
	msg := ctMessage(ctNew, unix.NLM_F_CREATE|unix.NLM_F_EXCL|unix.NLM_F_ACK, 1, family, body)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, buf, 0)
	if err != nil || n < nlHeader+4 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if errno := -int32(binary.NativeEndian.Uint32(buf[nlHeader:])); errno != 0 {
		t.Fatalf("track %s -> %s: %v", from, to, unix.Errno(errno))
	}
}

func tuple(body []byte, direction uint16, from, to netip.Addr, sport, dport uint16) []byte {
	ip := attr(nil, ctSrc(from), from.AsSlice())
	ip = attr(ip, ctSrc(to)+1, to.AsSlice())
	proto := attr(nil, 1, []byte{unix.IPPROTO_UDP}) // CTA_PROTO_NUM
	proto = attr(proto, 2, binary.BigEndian.AppendUint16(nil, sport))
	proto = attr(proto, 3, binary.BigEndian.AppendUint16(nil, dport))
	return nest(body, direction, nest(nest(nil, ctTupleIP, ip), 2, proto)) // CTA_TUPLE_PROTO
}

func TestConntrackNamesWhoBeganAndWhoAnswers(t *testing.T) {
	testutil.Root(t)
	if !nothingTracked() {
		t.Fatal("something is tracked before the test")
	}
	track(t, "10.0.0.2", "198.51.100.7", "198.51.100.7", "192.0.2.1") // masqueraded
	track(t, "10.0.0.3", "10.96.0.10", "10.0.0.4", "10.0.0.3")        // to a service
	track(t, "fd00::2", "fd00::3", "fd00::3", "fd00::2")
	var all, want []netip.Addr
	for addr, named := range map[string]bool{
		"10.0.0.2": true, "198.51.100.7": true, "10.0.0.3": true, "10.0.0.4": true, "fd00::2": true, "fd00::3": true,
		"10.0.0.5": false, "10.96.0.10": false, "192.0.2.1": false, "fd00::4": false, "::ffff:10.0.0.2": false,
	} {
		addr := netip.MustParseAddr(addr)
		all = append(all, addr)
		if named {
			want = append(want, addr)
		}
		if got := NewConntrack().Named(t.Context(), []netip.Addr{addr}); (len(got) == 1) != named {
			t.Errorf("%s alone: %v is named, want it: %v", addr, got, named)
		}
	}
	got := NewConntrack().Named(t.Context(), all)
	slices.SortFunc(got, netip.Addr.Compare)
	slices.SortFunc(want, netip.Addr.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("of all %v are named, want %v", got, want)
	}
}

// BenchmarkConntrack asks about addresses that nobody names, among 5,000 connections of each family.
func BenchmarkConntrack(b *testing.B) {
	testutil.Root(b)
	b.Run("nothing tracked", func(b *testing.B) {
		if !nothingTracked() {
			b.Fatal("a test has tracked something: run the benchmarks alone, with -run '^$'")
		}
		for b.Loop() {
			NewConntrack().Named(b.Context(), []netip.Addr{netip.MustParseAddr("10.9.9.9")})
		}
	})
	for i := range 5000 {
		host := [2]byte{byte(i >> 8), byte(i)}
		v4 := netip.AddrFrom4([4]byte{10, 1, host[0], host[1]}).String()
		v6 := netip.AddrFrom16([16]byte{0: 0xfd, 1: 1, 14: host[0], 15: host[1]}).String()
		track(b, v4, "198.51.100.7", "198.51.100.7", v4)
		track(b, v6, "2001:db8::7", "2001:db8::7", v6)
	}
	for _, n := range []int{1, 3, 1000} {
		addrs := make([]netip.Addr, n)
		for i := range addrs {
			addrs[i] = netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)})
		}
		b.Run(fmt.Sprintf("addresses=%d", n), func(b *testing.B) {
			for b.Loop() {
				if len(NewConntrack().Named(b.Context(), addrs)) > 0 {
					b.Fatal("one is named")
				}
			}
		})
	}
}

func FuzzConntrackAnswer(f *testing.F) {
	addr := netip.MustParseAddr("10.0.0.2")
	f.Add(ctFiltered(1, addr, ctTupleOrig))
	f.Add(ctMessage(ctNew, 0, 1, unix.AF_INET, tuple(nil, ctTupleOrig, addr, addr, 1, 2)))
	f.Fuzz(func(_ *testing.T, datagram []byte) { ctRead(datagram, 1, func(netip.Addr) {}) })
}
