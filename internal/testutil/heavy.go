package testutil

import (
	"math/rand/v2"
	"os"
)

// envNoBinaries tells the inner process that the tests with the project's binaries are left out.
const envNoBinaries = "PORIN_TEST_NO_BINARIES"

// Heavy reports whether the tests that run the project's binaries, or compile them, run too. make test sets HEAVY=1.
func Heavy() bool { return os.Getenv("HEAVY") == "1" }

// Full reports whether tests run in full: all rows of [Sample], and random tests and searches as far as they can.
// FULL=1 is for a change of what they test, and before an issue is resolved.
func Full() bool { return os.Getenv("FULL") == "1" }

// Sample returns one of the rows of a test, chosen at random, and with FULL=1 all of them.
func Sample[T any](rows ...T) []T {
	if Full() {
		return rows
	}
	i := rand.IntN(len(rows))
	return rows[i : i+1]
}

// root reports whether the tests that need root run. make check sets NO_ROOT=1.
func root() bool { return os.Geteuid() == 0 && os.Getenv("NO_ROOT") != "1" }
