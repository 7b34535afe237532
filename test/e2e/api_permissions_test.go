package e2e

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/testutil"
)

// A user and a group that no machine knows, and the group that may use the API.
const (
	stranger = 54321
	friends  = 54322
)

// opened is a rig whose socket and command line every user can find.
func opened(t *testing.T, flags ...string) (r *rig, porin string) {
	t.Helper()
	testutil.Root(t)
	node := testutil.NewNode(t)
	open := filepath.Join(filepath.Dir(node.Dir), "open-"+filepath.Base(node.Dir)) // node.Dir is root's alone
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(open) })
	node.Socket, porin = filepath.Join(open, "agent.sock"), filepath.Join(open, "porin")
	install(t, filepath.Join(testutil.Build(t), "porin"), porin)
	return rigOn(t, node, flags...), porin
}

func install(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
}

func TestSocketPermissions(t *testing.T) {
	r, porin := opened(t, "--api-group="+strconv.Itoa(friends))
	var stat unix.Stat_t
	if err := unix.Stat(r.node.Socket, &stat); err != nil || stat.Mode&0o777 != 0o660 || stat.Uid != 0 || stat.Gid != friends {
		t.Errorf("the socket has mode %o, user %d, group %d, %v", stat.Mode&0o777, stat.Uid, stat.Gid, err)
	}
	nobody := &syscall.Credential{Uid: stranger, Gid: stranger}
	for who, c := range map[string]struct {
		as   *syscall.Credential
		code int
	}{
		"root":                         {&syscall.Credential{}, 0},
		"the group":                    {&syscall.Credential{Uid: stranger, Gid: friends}, 0},
		"the group, as one of several": {&syscall.Credential{Uid: stranger, Gid: stranger, Groups: []uint32{7, friends, 8}}, 0},
		"another user and group":       {nobody, 1},
		"another in another group":     {&syscall.Credential{Uid: stranger, Gid: stranger, Groups: []uint32{0, 7}}, 1},
	} {
		if done := runIn(t, r.node, c.as, porin, "--socket", r.node.Socket, "status"); done.code != c.code {
			t.Errorf("%s: exit code %d, want %d: %s", who, done.code, c.code, done.err)
		}
	}
	if done := runIn(t, r.node, nobody, porin, "--socket", r.node.Socket, "status"); !done.one("only root and its group may use the agent") {
		t.Errorf("a stranger is told: %s", done.err)
	}
}

func TestSocketModeChanged(t *testing.T) {
	r, porin := opened(t, "--api-group="+strconv.Itoa(friends))
	p := r.pod()
	if err := os.Chmod(r.node.Socket, 0o777); err != nil { // as by hand, or bound into a container
		t.Fatal(err)
	}
	nobody := &syscall.Credential{Uid: stranger, Gid: stranger}
	for _, args := range [][]string{{"status"}, {"endpoint", "list"}, {"endpoint", "delete", "container-id:" + p.ID}, {"ipam", "list"}, {"events"}} {
		done := runIn(t, r.node, nobody, porin, append([]string{"--socket", r.node.Socket}, args...)...)
		if done.code != 1 || !done.one("(forbidden)") {
			t.Errorf("porin %v: exit code %d: %s%s", args, done.code, done.out, done.err)
		}
	}
	if n := len(r.endpoints()); n != 1 {
		t.Errorf("%d endpoints", n)
	}
}

func TestBPFCommandWithoutRoot(t *testing.T) {
	r, porin := opened(t)
	done := runIn(t, r.node, &syscall.Credential{Uid: stranger, Gid: stranger}, porin, "bpf", "--bpf-root", r.node.BPFRoot)
	if done.code != 1 || done.err == "" {
		t.Errorf("exit code %d: %s%s", done.code, done.out, done.err)
	}
}

func TestSocketUnknownGroup(t *testing.T) {
	testutil.Root(t)
	failsWith(t, testutil.NewNode(t), []string{"--api-group=no-such-group"}, "no-such-group")
}
