package bpf_test

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

func TestVerifierListener(t *testing.T) {
	testutil.Root(t)
	spec, err := bpf.Listener()
	if err != nil {
		t.Fatal(err)
	}
	sizeListener(spec)
	verify(t, spec)
}

// sizeListener gives the maps that are shared with other programs a size.
func sizeListener(spec *ebpf.CollectionSpec) {
	for _, one := range spec.Maps {
		one.MaxEntries = max(1, one.MaxEntries)
	}
}

// TestSelectListener: the program gives packets from one device to a socket, or to none, and leaves all others alone.
func TestSelectListener(t *testing.T) {
	ns := testutil.NetNS(t)
	lo := ns.Link(t, "lo").Attrs().Index
	var server net.Listener
	err := ns.Do(func() (err error) {
		config := net.ListenConfig{}
		config.SetMultipathTCP(false) // the map takes no such sockets
		server, err = config.Listen(t.Context(), "tcp", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	direct := ns.Listen(t, netip.MustParseAddrPort("127.0.0.1:0"))
	attach := func(index int, sockets ...net.Listener) {
		t.Helper()
		spec, err := bpf.Listener()
		if err != nil {
			t.Fatal(err)
		}
		if err := spec.Variables[bpf.SelectListenerLink].Set(uint32(index)); err != nil {
			t.Fatal(err)
		}
		sizeListener(spec)
		collection, err := ebpf.NewCollection(spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(collection.Close)
		for _, socket := range sockets {
			raw, err := socket.(*net.TCPListener).SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			var putErr error
			if err := errors.Join(raw.Control(func(fd uintptr) { putErr = collection.Maps[bpf.Listeners].Put(abi.ListenerTCP4, uint64(fd)) }), putErr); err != nil {
				t.Fatal(err)
			}
		}
		attached, err := link.AttachNetNs(ns.FD(), collection.Programs[bpf.SelectListener])
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { attached.Close() })
	}
	reached := func() string {
		t.Helper()
		conn, err := ns.Dial(netip.MustParseAddrPort(direct.Addr().String()), 300*time.Millisecond)
		if err != nil {
			if errors.Is(err, unix.ECONNREFUSED) {
				return "refused"
			}
			return "nobody"
		}
		defer conn.Close()
		for name, l := range map[string]net.Listener{"direct": direct, "server": server} {
			_ = l.(*net.TCPListener).SetDeadline(time.Now().Add(50 * time.Millisecond))
			if accepted, err := l.Accept(); err == nil {
				accepted.Close()
				return name
			}
		}
		return "nobody accepts"
	}
	attach(lo + 1)
	if got := reached(); got != "direct" {
		t.Errorf("by another device: %s", got)
	}
	attach(lo, server)
	if got := reached(); got != "server" {
		t.Errorf("by the device: %s, want the socket in the map", got)
	}
	server.Close()
	if got := reached(); got != "nobody" && got != "refused" {
		t.Errorf("by the device, with the socket closed: %s", got)
	}
}
