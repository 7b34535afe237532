package server

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// envCallAs makes the test binary a caller of that socket which first becomes the user in envIdentity.
const (
	envCallAs   = "PORIN_TEST_CALL"
	envIdentity = "PORIN_TEST_IDENTITY"
)

// identity is who calls.
type identity struct {
	UID, GID int
	Groups   []int
}

func TestGuard(t *testing.T) {
	testutil.Root(t)
	const group = 4242
	socket := strangersSocket(t, "4242")
	tests := []struct {
		name string
		who  identity
		want string
	}{
		{"root", identity{}, "200"},
		{"the group", identity{UID: 1000, GID: group}, "200"},
		{"the group as a supplementary one", identity{UID: 1000, GID: 1000, Groups: []int{1, 2, group}}, "200"},
		{"one of very many groups", identity{UID: 1000, GID: 1000, Groups: append(manyGroups(), group)}, "200"},
		{"a stranger", identity{UID: 1000, GID: 1000, Groups: []int{1, 2}}, "403 forbidden"},
		{"a stranger in many groups", identity{UID: 1000, GID: 1000, Groups: manyGroups()}, "403 forbidden"},
		{"a stranger in root's group", identity{UID: 1000, GID: 0}, "403 forbidden"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := callIn(t, socket, tt.who); got != tt.want {
				t.Errorf("answer %q, want %q", got, tt.want)
			}
		})
	}
}

// strangersSocket is the socket of a server that all users can connect to, so that only the server's own check is
// left.
func strangersSocket(t *testing.T, group string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "porin")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	r := newRig(t, Parts{}, func(s *Server) {
		s.cfg.Socket, s.cfg.Group = filepath.Join(dir, "agent.sock"), group
	})
	for path, mode := range map[string]os.FileMode{dir: 0o755, r.cfg.Socket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	return r.cfg.Socket
}

func manyGroups() (groups []int) {
	for g := range 100 {
		groups = append(groups, 5000+g)
	}
	return groups
}

func callIn(t *testing.T, socket string, who identity) string {
	t.Helper()
	text, err := json.Marshal(who)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envCallAs+"="+socket, envIdentity+"="+string(text),
		"GORACE=atexit_sleep_ms=0") // the race detector sleeps a second at exit
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// callAs is the whole program of the caller. It changes its own credentials, for a stranger could not execute a test
// binary in a folder that is root's.
func callAs(socket string) {
	var who identity
	check(json.Unmarshal([]byte(os.Getenv(envIdentity)), &who))
	check(syscall.Setgroups(who.Groups))
	check(syscall.Setresgid(who.GID, who.GID, who.GID))
	check(syscall.Setresuid(who.UID, who.UID, who.UID))
	answer, err := clientOf(socket).Get("http://porin/v1/status")
	check(err)
	var problem struct{ Code string }
	check(json.NewDecoder(answer.Body).Decode(&problem))
	fmt.Println(answer.StatusCode, problem.Code)
}

func check(err error) {
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
