package story

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// seen is a test that only notes whether it failed.
type seen struct {
	testing.TB
	failed bool
}

func (s *seen) Errorf(string, ...any) { s.failed = true }
func (s *seen) Helper()               {}

// TestCommandsHideBuiltins holds the list against testscript: a verb of such a name is refused, and not called.
func TestCommandsHideBuiltins(t *testing.T) {
	for _, word := range ownWords {
		called := false
		verbs := Verbs{word: func(*testscript.TestScript, bool, []string) { called = true }}
		if s := (&seen{}); len(verbs.Checked(s)) != 1 || !s.failed {
			t.Errorf("verb %q was not refused", word)
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "a.txtar"), []byte(word+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Run("ignored", func(t *testing.T) {
			testscript.RunT(quiet{t}, testscript.Params{Dir: dir, Cmds: verbs})
		})
		if called {
			t.Errorf("%q is no word of testscript's: leave it out of the list", word)
		}
	}
}

// quiet runs scripts whose output does not matter.
type quiet struct{ *testing.T }

func (q quiet) Parallel()                          {}
func (q quiet) Verbose() bool                      { return false }
func (q quiet) Log(...any)                         {}
func (q quiet) Fatal(...any)                       { panic(ended{}) }
func (q quiet) FailNow()                           { panic(ended{}) }
func (q quiet) Skip(...any)                        { panic(ended{}) }
func (q quiet) Run(_ string, f func(testscript.T)) { defer func() { _ = recover() }(); f(q) }

type ended struct{}
