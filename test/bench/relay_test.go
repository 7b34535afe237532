package bench

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// envRelay makes a relay of this program: network, address to listen at and address of the server.
const envRelay = "PORIN_BENCH_RELAY"

// relayed is a way with a process in between that only reads and writes: what any proxy of its own process costs on the
// machine, and so the floor of what one adds.
func relayed(t *testing.T, network string, port uint16, serve httpServer) (from *testutil.Namespace, to netip.AddrPort) {
	t.Helper()
	s := porin(t, "relay", "10.200.0.0/16,fd00:200::/64")
	p := attached(t, s)
	to = netip.AddrPortFrom(s.node.IPv4, port)
	server := netip.AddrPortFrom(p.addr, port)
	serve(t, p.to, server)
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), envRelay+"="+strings.Join([]string{network, to.String(), server.String()}, " "))
	cmd.Stderr = os.Stderr
	ready, err := cmd.StdoutPipe()
	if err == nil {
		err = s.node.Do(cmd.Start)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if _, err := ready.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the relay did not start: %v", err)
	}
	return p.from, to
}

// relayMain is the relay's process. It returns an exit code when it cannot go on.
func relayMain(what string) int {
	var network, listen, server string
	_, err := fmt.Sscan(what, &network, &listen, &server)
	switch {
	case err != nil:
	case network == "udp":
		err = relayDatagrams(listen, server)
	default:
		err = relayConnections(listen, server)
	}
	fmt.Fprintln(os.Stderr, "relay:", err)
	return 1
}

// relayConnections has two threads for each connection, which block in read(2).
func relayConnections(listen, server string) error {
	listener, err := openSocket(unix.SOCK_STREAM, listen, unix.Bind)
	if err == nil {
		err = unix.Listen(listener, 128)
	}
	if err != nil {
		return err
	}
	fmt.Println()
	for {
		client, _, err := unix.Accept(listener)
		if err != nil {
			return err
		}
		upstream, err := openSocket(unix.SOCK_STREAM, server, unix.Connect)
		if err != nil {
			return err
		}
		for _, socket := range []int{client, upstream} {
			if err := unix.SetsockoptInt(socket, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
				return err
			}
		}
		go func() {
			var back sync.WaitGroup
			back.Go(func() { relayStream(upstream, client) })
			relayStream(client, upstream)
			back.Wait()
			_, _ = unix.Close(client), unix.Close(upstream)
		}()
	}
}

// relayStream copies until the stream ends, and ends the other one.
func relayStream(from, to int) {
	runtime.LockOSThread()
	buffer := make([]byte, 64<<10)
	for {
		n, err := unix.Read(from, buffer)
		for done := 0; err == nil && done < n; {
			var written int
			written, err = unix.Write(to, buffer[done:n])
			done += written
		}
		if n <= 0 || err != nil {
			_ = unix.Shutdown(to, unix.SHUT_WR)
			return
		}
	}
}

// relayDatagrams passes one query after the other on, and the answer of each, on one thread.
func relayDatagrams(listen, server string) error {
	client, err := openSocket(unix.SOCK_DGRAM, listen, unix.Bind)
	if err != nil {
		return err
	}
	upstream, err := openSocket(unix.SOCK_DGRAM, server, unix.Connect)
	if err != nil {
		return err
	}
	fmt.Println()
	runtime.LockOSThread()
	buffer := make([]byte, 1500)
	for {
		n, peer, err := unix.Recvfrom(client, buffer, 0)
		if err == nil {
			_, err = unix.Write(upstream, buffer[:n])
		}
		if err == nil {
			n, err = unix.Read(upstream, buffer)
		}
		if err == nil {
			err = unix.Sendto(client, buffer[:n], 0, peer)
		}
		if err != nil {
			return err
		}
	}
}

// openSocket makes a socket of IPv4 that blocks, and has it do what it is for with the address.
func openSocket(kind int, addr string, do func(int, unix.Sockaddr) error) (int, error) {
	a, err := netip.ParseAddrPort(addr)
	if err != nil {
		return 0, err
	}
	socket, err := unix.Socket(unix.AF_INET, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	return socket, do(socket, &unix.SockaddrInet4{Addr: a.Addr().As4(), Port: int(a.Port())})
}
