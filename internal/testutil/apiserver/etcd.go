package apiserver

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// etcd is the process under the API server: test/etcd. It has its data and its socket in a folder.
type etcd struct {
	binary, dir string
	cmd         *exec.Cmd // nil when it does not run
	input       io.Closer
}

func (e *etcd) url() string { return "unix://" + filepath.Join(e.dir, "client") }

// start returns when it serves.
func (e *etcd) start() error {
	cmd := exec.Command(e.binary, "serve", e.dir)
	input, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	e.cmd, e.input = cmd, input
	if _, err := bufio.NewReader(output).ReadString('\n'); err != nil {
		return fmt.Errorf("start etcd: it does not serve: %w", err)
	}
	return nil
}

// stop kills it, if it runs.
func (e *etcd) stop() {
	if e.cmd == nil {
		return
	}
	_ = e.cmd.Process.Kill()
	_ = e.cmd.Wait()
	_ = e.input.Close()
	e.cmd = nil
}

// do runs one of its other commands.
func (e *etcd) do(t testing.TB, command string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), e.binary, append([]string{command, e.dir}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("etcd %s: %v\n%s", command, err, out)
	}
}

// Save returns the file of a snapshot of etcd.
func (s *Server) Save(t testing.TB) string {
	t.Helper()
	s.saved++
	path := s.file(fmt.Sprintf("snapshot-%d", s.saved))
	s.etcd.do(t, "save", path)
	return path
}

// Restore stops the API server, restores etcd from a snapshot, and starts both.
func (s *Server) Restore(t testing.TB, snapshot string, bump uint64) {
	t.Helper()
	s.Stop()
	s.RestoreEtcd(t, snapshot, bump)
	s.Start(t)
}

// RestoreEtcd restores etcd from a snapshot under the API server. A bump above 0 is added to the revision, and earlier
// revisions count as compacted: etcdutl snapshot restore --bump-revision --mark-compacted.
func (s *Server) RestoreEtcd(t testing.TB, snapshot string, bump uint64) {
	t.Helper()
	s.etcd.stop()
	s.etcd.do(t, "restore", snapshot, strconv.FormatUint(bump, 10))
	if err := s.etcd.start(); err != nil {
		t.Fatal(err)
	}
}

// Compact has etcd forget the past.
func (s *Server) Compact(t testing.TB) {
	t.Helper()
	s.etcd.do(t, "compact")
}

// Advance has etcd go on by some revisions, without the API server.
func (s *Server) Advance(t testing.TB, revisions int) {
	t.Helper()
	s.etcd.do(t, "advance", strconv.Itoa(revisions))
}
