package testutil

import "os"

// envNoBinaries tells the inner process that the tests with the project's binaries are left out.
const envNoBinaries = "PORIN_TEST_NO_BINARIES"

// Heavy reports whether the tests that run the project's binaries, or compile them, run too. make test sets HEAVY=1.
func Heavy() bool { return os.Getenv("HEAVY") == "1" }

// Full reports whether random tests and searches go as far as they can: FULL=1, which is for a change of what they test.
func Full() bool { return os.Getenv("FULL") == "1" }

// root reports whether the tests that need root run. make check sets NO_ROOT=1.
func root() bool { return os.Geteuid() == 0 && os.Getenv("NO_ROOT") != "1" }
