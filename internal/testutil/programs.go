package testutil

import (
	"os"
	"os/exec"
	"testing"
)

// NeedPrograms skips the test when a program is not installed. With REQUIRE_PROGRAMS=1 the test fails instead. The
// programs are listed in test/deps.sh.
func NeedPrograms(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := exec.LookPath(name)
		switch {
		case err == nil:
		case os.Getenv("REQUIRE_PROGRAMS") == "1":
			t.Fatalf("REQUIRE_PROGRAMS=1: %v", err)
		default:
			t.Skipf("needs the program %s", name)
		}
	}
}
