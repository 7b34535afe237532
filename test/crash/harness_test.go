package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// TestHarnessKillsBeforeEffect kills a shell at each effect of a script, and finds what came before it and no more.
func TestHarnessKillsBeforeEffect(t *testing.T) {
	testutil.Root(t)
	const first, second = "one\n", "two\n"
	for name, row := range map[string]struct {
		call, file string // to die at; without a call no process dies
		want       map[string]string
	}{
		"making the first":   {"create", "a", map[string]string{}},
		"writing the first":  {"write", "a", map[string]string{"a": ""}},
		"making the second":  {"create", "b", map[string]string{"a": first}},
		"writing the second": {"write", "b", map[string]string{"a": first, "b": ""}},
		"nothing":            {"", "", map[string]string{"a": first, "b": second}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, tr := t.TempDir(), &tracer{}
			tr.arm(func(_ int, e effect) bool { return e.call == row.call && filepath.Base(e.on) == row.file })
			cmd := exec.Command("/bin/sh", "-c", "echo one > $0/a; echo two > $0/b", dir)
			tr.wrap(cmd)
			if err := cmd.Run(); (err != nil) != (row.call != "") {
				t.Errorf("the shell ended with %v", err)
			}
			tr.end()
			if _, hit, err := tr.state(); err != nil || (hit != nil) != (row.call != "") {
				t.Errorf("hit %v, %v", hit, err)
			}
			for _, file := range []string{"a", "b"} {
				text, err := os.ReadFile(filepath.Join(dir, file))
				if want, there := row.want[file]; (err == nil) != there || string(text) != want {
					t.Errorf("%s has %q, %v; want %q, there: %v", file, text, err, want, there)
				}
			}
		})
	}
}

// TestHarnessUnknownCall: a call counts unless it is known to be harmless.
func TestHarnessUnknownCall(t *testing.T) {
	if e, is := (process{}).effectOf(notification{nr: 9999}); !is || e.call != "system call 9999" || e.talk {
		t.Errorf("%+v, %v", e, is)
	}
}

func TestHarnessReadOnlyCalls(t *testing.T) {
	question := []byte{16, 0, 0, 0, 18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}  // RTM_GETLINK
	change := []byte{16, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}    // RTM_DELLINK
	connection := []byte{16, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0} // IPCTNL_MSG_CT_GET
	rules := []byte{16, 0, 0, 0, 7, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}     // NFT_MSG_GETRULE
	newRule := []byte{16, 0, 0, 0, 6, 10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}   // NFT_MSG_NEWRULE
	if e, is := netlinkEffect(newRule); !is || e.call != "nftables message 6" {
		t.Errorf("a new rule: %q, %v", e, is)
	}
	if e, is := netlinkEffect(slices.Concat(question, connection, rules)); is {
		t.Errorf("questions are %q", e)
	}
	if e, is := netlinkEffect(append(question, change...)); !is || e.call != "RTM_DELLINK" {
		t.Errorf("a question and a change: %q, %v", e, is)
	}
	if e, is := bpfEffect(1000); !is || e.call != "bpf command 1000" {
		t.Errorf("a command that nobody knows: %q, %v", e, is)
	}
}
