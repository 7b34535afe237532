package httpproxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/proxy/proxytest"
)

// waitingInPipes returns how many bytes wait in pipes of this process, and how many pipes there are.
func waitingInPipes(t *testing.T) (bytes, ends int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		to, _ := os.Readlink("/proc/self/fd/" + e.Name())
		if !strings.HasPrefix(to, "pipe:") {
			continue
		}
		fd, _ := strconv.Atoi(e.Name())
		if fd <= 2 {
			continue
		}
		ends++
		if n, err := unix.IoctlGetInt(fd, unix.TIOCINQ); err == nil {
			bytes += n
		}
	}
	return bytes / 2, ends
}

// TestPipesOfSlowReaders: clients ask for large answers and read nothing. The proxy moves bytes from the server's
// socket into pipes of the kernel, which no limit of TCP counts; the memory of the connections does.
func TestPipesOfSlowReaders(t *testing.T) {
	const clients, room = 50, 8 << 20
	server := rawServer(t, func(c *net.TCPConn, _ *bufio.Reader) {
		_, _ = c.Read(make([]byte, 4096))
		fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", 1<<30)
		_, _ = io.Copy(c, zeros{})
	})
	memory := proxytest.NewMemory(room)
	p := startProxy(t, &proxy{server: server, quiet: true, memory: memory})
	for range clients {
		p.dial().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	}
	proxytest.Eventually(t, "a session has got no memory", func() bool { return memory.HasRefused() })
	for range 20 { // it stays so, while the servers go on to send
		if bytes, ends := waitingInPipes(t); bytes > room {
			t.Fatalf("%d KiB wait in %d ends of pipes, want at most %d", bytes>>10, ends, room>>10)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
