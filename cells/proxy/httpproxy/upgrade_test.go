package httpproxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestUpgradeOfManyProtocols: a client offers as many protocols as a head has room for, and a server of one mind with
// it takes as many. One request takes less than two seconds of processor time (some milliseconds on an idle machine; a
// quadratic search took much more).
func TestUpgradeOfManyProtocols(t *testing.T) {
	const n = 32_000
	p := newQuietProxy(t, rawServer(t, func(c *net.TCPConn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+strings.Repeat("a,", n)+"\r\n\r\n")
		_, _ = io.Copy(io.Discard, c)
	}))
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := processorTime(t)
	if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: "+strings.Repeat("b,", n)+"a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
	response, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	if took := processorTime(t) - before; took > 2*time.Second {
		t.Errorf("one request, with status %d, has taken %v of processors", response.StatusCode, took)
	}
}
