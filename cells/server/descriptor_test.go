package server

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/httpx"
	"porin.dev/porin/internal/testutil"
)

// descriptorServer answers GET /v1/take with the name of the file that came with the request, and GET /v1/leave without
// taking it.
func descriptorServer(t *testing.T) string {
	t.Helper()
	take := func(w http.ResponseWriter, r *http.Request) error {
		file, err := TakeDescriptor(r.Context())
		if err != nil {
			return err
		}
		defer file.Close()
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
		if err != nil {
			return err
		}
		flags, err := unix.FcntlInt(file.Fd(), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			return fmt.Errorf("close-on-exec is not set: %d, %w", flags, err)
		}
		_, err = io.WriteString(w, name)
		return err
	}
	parts := handle(http.MethodGet, "/v1/take", httpx.Handler(take).ServeHTTP)
	parts.Routes = append(parts.Routes, handle(http.MethodGet, "/v1/leave", func(http.ResponseWriter, *http.Request) {}).Routes...)
	return newRig(t, parts).cfg.Socket
}

// ask sends a request, with rights on its first byte, and returns the status and the body.
func askWith(t *testing.T, socket, path string, rights []byte) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	request := "GET " + path + " HTTP/1.1\r\nHost: porin\r\nConnection: close\r\n\r\n"
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte(request), rights, nil); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, testutil.Body(t, response)
}

// passedFile is open until the end of the test.
func passedFile(t *testing.T) *os.File {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "passed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

func TestTakeDescriptor(t *testing.T) {
	socket := descriptorServer(t)
	file := passedFile(t)
	fd := int(file.Fd())
	for name, c := range map[string]struct {
		rights []byte
		status int
		words  string
	}{
		"one":  {unix.UnixRights(fd), 200, file.Name()},
		"none": {nil, 503, "no file descriptor came with the request"},
		"two":  {unix.UnixRights(fd, fd), 503, "want exactly one file descriptor"},
		"many": {unix.UnixRights(fd, fd, fd, fd, fd, fd, fd, fd), 503, "want exactly one file descriptor"},
	} {
		status, body := askWith(t, socket, "/v1/take", c.rights)
		if status != c.status || !strings.Contains(body, c.words) {
			t.Errorf("%s: %d %s, want %d and %q", name, status, body, c.status, c.words)
		}
	}
}

// TestDescriptorsClosed sends descriptors that no handler takes, and too many of them.
func TestDescriptorsClosed(t *testing.T) {
	socket := descriptorServer(t)
	file := passedFile(t)
	fd := int(file.Fd())
	askWith(t, socket, "/v1/leave", nil) // the first request opens these for good
	before := testutil.OpenFiles(t)
	for range 20 {
		askWith(t, socket, "/v1/leave", unix.UnixRights(fd))
		askWith(t, socket, "/v1/take", unix.UnixRights(fd))
		askWith(t, socket, "/v1/take", unix.UnixRights(fd, fd, fd))
		askWith(t, socket, "/v1/nothing", unix.UnixRights(fd))
	}
	conn, err := net.Dial("unix", socket) // no request comes after the first byte
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := conn.(*net.UnixConn).WriteMsgUnix([]byte("G"), unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	testutil.Eventually(t, func() error {
		if now := testutil.OpenFiles(t); now > before {
			return fmt.Errorf("%d files are open, and were %d", now, before)
		}
		return nil
	})
}

// TestTakeDescriptorAfterFirstByte passes a descriptor with the second request of a connection, and with a later byte
// of one.
func TestTakeDescriptorAfterFirstByte(t *testing.T) {
	socket := descriptorServer(t)
	file, err := os.CreateTemp(t.TempDir(), "passed")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for i, parts := range [][2]string{{"GET /v1/leave HTTP/1.1\r\nHost: porin\r\n\r\n", ""}, {"", "GET /v1/take HTTP/1.1\r\nHost: porin\r\n\r\n"}} {
		if parts[0] != "" {
			_, err = io.WriteString(conn, parts[0])
		} else {
			_, _, err = conn.(*net.UnixConn).WriteMsgUnix([]byte(parts[1]), unix.UnixRights(int(file.Fd())), nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, response.Body)
		if want := []int{200, 503}[i]; response.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i+1, response.StatusCode, want)
		}
	}
}

func TestTakeDescriptorWithoutConnection(t *testing.T) {
	if _, err := TakeDescriptor(t.Context()); !errors.Is(err, ErrNoDescriptor) {
		t.Errorf("error %v, want ErrNoDescriptor", err)
	}
}
