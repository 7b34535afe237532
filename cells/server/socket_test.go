package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/flock"
)

func open(t *testing.T, path string) (*socket, error) {
	t.Helper()
	lock, err := NewSocketLock(Config{Socket: path})
	if err != nil {
		return nil, err
	}
	if err := lock.Acquire(t.Context()); err != nil {
		return nil, err
	}
	s, err := openSocket(t.Context(), path, "")
	if err != nil {
		return nil, errors.Join(err, lock.Release())
	}
	t.Cleanup(func() { _ = errors.Join(s.listener.Close(), s.remove(), lock.Release()) })
	return s, nil
}

func TestSocketMode(t *testing.T) {
	old := unix.Umask(0o077) // process-wide, and taken over by nothing but this test's files
	defer unix.Umask(old)
	path := filepath.Join(t.TempDir(), "made", "for", "it", "agent.sock")
	if _, err := open(t, path); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{path: fs.ModeSocket | 0o660, filepath.Dir(path): fs.ModeDir | 0o755} {
		info, err := os.Lstat(name)
		if err != nil || info.Mode() != want {
			t.Errorf("%s: mode %v, want %v (%v)", name, info.Mode(), want, err)
		}
	}
}

func TestSocketOfKilledAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	leaveStale(t, path)
	if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, path); err != nil {
		t.Fatal(err)
	}
	if _, err := listenerPID(t.Context(), path); err != nil {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestSocketOfRunningAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	if _, err := open(t, path); err != nil {
		t.Fatal(err)
	}
	_, err := open(t, path)
	want := fmt.Sprintf("open socket %s: another agent serves it (pid %d); stop it, or choose another --api-socket", path, os.Getpid())
	if !errors.Is(err, ErrInUse) || err.Error() != want {
		t.Errorf("error %v\nwant  %s", err, want)
	}
}

func TestSocketOfRunningAgentWithoutLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	other, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if _, err := open(t, path); !errors.Is(err, ErrInUse) {
		t.Errorf("error %v", err)
	}
}

func TestSocketLockConcurrently(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	leaveStale(t, path)
	var (
		started sync.WaitGroup
		won     atomic.Int32
		begin   = make(chan bool)
	)
	for range 16 {
		started.Go(func() {
			<-begin
			switch _, err := open(t, path); {
			case err == nil:
				won.Add(1)
			case !errors.Is(err, ErrInUse):
				t.Error(err)
			}
		})
	}
	close(begin)
	started.Wait()
	if won.Load() != 1 {
		t.Errorf("%d agents have the socket", won.Load())
	}
}

func TestSocketPathTaken(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, path, want string }{
		{"a regular file", file, "a file that is no socket is in the way"},
		{"a folder", dir, "a file that is no socket is in the way"},
		{"a file for a folder", filepath.Join(file, "agent.sock"), "not a directory"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := open(t, tt.path)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), tt.path) {
				t.Errorf("error %v, want %q and the path", err, tt.want)
			}
		})
	}
	if content, err := os.ReadFile(file); err != nil || string(content) != "precious" {
		t.Errorf("file: %q %v", content, err)
	}
}

func TestSocketUnknownGroup(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Socket: filepath.Join(dir, "agent.sock"), Group: "no-such-group"}
	s, err := New(cfg, Info{}, slog.New(slog.DiscardHandler), Parts{})
	if err != nil {
		t.Fatal(err)
	}
	err = s.Start(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "no-such-group") {
		t.Errorf("error %v", err)
	}
	checkLeft(t, cfg.Socket)
}

// checkLeft wants nothing in the folder of a socket but the file of its lock, which is not locked.
func checkLeft(t *testing.T, socket string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Dir(socket))
	if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(socket)+".lock" {
		t.Errorf("left: %v, %v; want the file of the lock alone", left, err)
	}
	file, err := os.Open(socket + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := flock.Try(file); err != nil {
		t.Errorf("the lock of the socket: %v", err)
	}
}

func TestConfigFaults(t *testing.T) {
	long := "/" + strings.Repeat("a", 107)
	tests := []struct {
		cfg  Config
		want string
	}{
		{Config{Socket: "agent.sock"}, "want the absolute path"},
		{Config{Socket: "/run/"}, "want the absolute path"},
		{Config{Socket: long}, "108 bytes long, and the kernel takes at most 107"},
		{Config{Socket: "/a", Group: "a:b"}, `api-group "a:b"`},
		{Config{Socket: "", Group: " "}, `api-group " "`},
	}
	for _, tt := range tests {
		_, err := New(tt.cfg, Info{}, slog.New(slog.DiscardHandler), Parts{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %q", tt.cfg, err, tt.want)
		}
	}
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func TestSocketPathLongest(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, strings.Repeat("a", maxSocketPath-len(dir)-1))
	if _, err := open(t, path); err != nil {
		t.Error(err)
	}
}

func leaveStale(t *testing.T, path string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(context.Background(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
