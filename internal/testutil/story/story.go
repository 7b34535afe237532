// Package story runs the txtar scripts that show what a cell does, told as its user would tell it. A script's commands
// are the cell's verbs, and act on a world of the script's own.
package story

import (
	"fmt"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// Command is a verb. Its error is on the script's stderr, and must be expected there ("! verb").
type Command[W any] func(w W, ts *testscript.TestScript, args []string) error

type worldKey struct{}

// Run runs every script of testdata, each in a world of its own.
func Run[W any](t *testing.T, world func(*testscript.Env) W, commands map[string]Command[W]) {
	t.Helper()
	verbs := Verbs{}
	for name, run := range commands {
		verbs[name] = func(ts *testscript.TestScript, neg bool, args []string) {
			err := run(ts.Value(worldKey{}).(W), ts, args)
			if err != nil {
				_, _ = fmt.Fprintln(ts.Stderr(), err)
			}
			if (err != nil) != neg {
				ts.Fatalf("error %v, want one: %v", err, neg)
			}
		}
	}
	testscript.Run(t, testscript.Params{
		Dir:                "testdata",
		RequireUniqueNames: true,
		Cmds:               verbs.Checked(t),
		Setup: func(env *testscript.Env) error {
			env.Values[worldKey{}] = world(env)
			return nil
		},
	})
}

// Verbs are commands as testscript has them.
type Verbs map[string]func(ts *testscript.TestScript, neg bool, args []string)

// ownWords are the commands that testscript v1.16.0 knows itself and prefers. A verb of such a name is never called: a
// script with a verb "stop" ends there, with success.
var ownWords = []string{
	"cd", "chmod", "cmp", "cmpenv", "cp", "env", "exec", "exists", "grep", "kill", "mkdir", "mv", "rm", "skip", "stderr",
	"stdin", "stdout", "stop", "symlink", "ttyin", "ttyout", "unix2dos", "unquote", "wait",
}

// Checked returns the verbs, or fails the test when one would never be called.
func (v Verbs) Checked(t testing.TB) Verbs {
	t.Helper()
	for _, word := range ownWords {
		if v[word] != nil {
			t.Errorf("verb %q: testscript has a command of that name, and would run it instead", word)
		}
	}
	return v
}
