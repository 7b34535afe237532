package bench

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What follows uses blocking sockets on threads of their own, so that Go's poller is not part of the figure. The
// threads are pinned: where the scheduler puts the ends decides between a round trip of 6 and of 60 us, and a median
// over a mix of both says nothing.

// placement says on which CPU each end runs.
type placement struct {
	name           string
	client, server int
}

var placements = []placement{{"2 CPUs", 0, 1}, {"1 CPU", 0, 0}}

// pinned runs f with the calling thread, which must be locked, on the CPU.
func pinned(cpu int, f func() error) error {
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return err
	}
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		return fmt.Errorf("pin to CPU %d: %w", cpu, err)
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }()
	return f()
}

// requestResponse sends one byte there and back, n times over one connection.
func requestResponse(t *testing.T, p path, on placement, n int) []time.Duration {
	t.Helper()
	took := make([]time.Duration, n)
	serve(t, p, on, 1, echo, func(dial func() (int, error)) error {
		fd, err := dial()
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		for i := range took {
			began := time.Now()
			if err := roundTrip(fd); err != nil {
				return err
			}
			took[i] = time.Since(began)
		}
		return nil
	})
	return took
}

// connectRequestClose makes n connections one after the other, each for one request, and returns the time of all.
func connectRequestClose(t *testing.T, p path, on placement, n int) (took time.Duration) {
	t.Helper()
	serve(t, p, on, n, echo, func(dial func() (int, error)) error {
		began := time.Now()
		for range n {
			fd, err := dial()
			if err != nil {
				return err
			}
			err = roundTrip(fd)
			_ = unix.Close(fd)
			if err != nil {
				return err
			}
		}
		took = time.Since(began)
		return nil
	})
	return took
}

// stream sends so many bytes one way and waits until the other end has read them all.
func stream(t *testing.T, p path, on placement, bytes int) (took time.Duration) {
	t.Helper()
	drain := func(fd int) error {
		buf := make([]byte, streamChunkBytes)
		for {
			n, err := unix.Read(fd, buf)
			if err != nil {
				return err
			}
			if n == 0 {
				_, err := unix.Write(fd, []byte{1}) // all read
				return err
			}
		}
	}
	serve(t, p, on, 1, drain, func(dial func() (int, error)) error {
		fd, err := dial()
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		chunk := make([]byte, streamChunkBytes)
		began := time.Now()
		for left := bytes; left > 0; {
			n, err := unix.Write(fd, chunk[:min(left, len(chunk))])
			if err != nil {
				return err
			}
			left -= n
		}
		if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
			return err
		}
		_, err = unix.Read(fd, chunk[:1])
		took = time.Since(began)
		return err
	})
	return took
}

func roundTrip(fd int) error {
	var buf [requestBytes]byte
	if _, err := unix.Write(fd, buf[:]); err != nil {
		return err
	}
	n, err := unix.Read(fd, buf[:])
	if err == nil && n != len(buf) {
		return fmt.Errorf("read %d bytes", n)
	}
	return err
}

func echo(fd int) error {
	var buf [requestBytes]byte
	for {
		n, err := unix.Read(fd, buf[:])
		if n == 0 || err != nil {
			return err
		}
		if _, err := unix.Write(fd, buf[:n]); err != nil {
			return err
		}
	}
}

// serve lets handle serve so many connections at one end, one after the other, while client runs at the other.
func serve(t *testing.T, p path, on placement, connections int, handle func(fd int) error,
	client func(dial func() (int, error)) error,
) {
	t.Helper()
	listener, port := listen(t, p)
	defer unix.Close(listener)
	served := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		served <- pinned(on.server, func() error { return accept(listener, connections, handle) })
	}()
	to := &unix.SockaddrInet4{Port: port, Addr: p.addr.As4()}
	err := p.from.Do(func() error { // runs on a thread in the namespace
		return pinned(on.client, func() error { return client(func() (int, error) { return connect(to) }) })
	})
	if err != nil {
		t.Fatalf("%s: client: %v", p.name, err)
	}
	if err := <-served; err != nil {
		t.Fatalf("%s: server: %v", p.name, err)
	}
}

// accept handles so many connections.
func accept(listener, connections int, handle func(fd int) error) error {
	for range connections {
		fd, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
		if err != nil {
			return err
		}
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
		err = handle(fd)
		_ = unix.Close(fd)
		if err != nil {
			return err
		}
	}
	return nil
}

func connect(to *unix.SockaddrInet4) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	return fd, unix.Connect(fd, to)
}

func listen(t *testing.T, p path) (fd, port int) {
	t.Helper()
	err := p.to.Do(func() (err error) {
		if fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: netip.IPv4Unspecified().As4()}); err != nil {
			return err
		}
		return unix.Listen(fd, 128)
	})
	if err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fd, name.(*unix.SockaddrInet4).Port
}
