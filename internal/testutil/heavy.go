package testutil

import "os"

// envNoBinaries tells the inner process that the tests with the project's binaries are left out.
const envNoBinaries = "PORIN_TEST_NO_BINARIES"

// Heavy reports whether tests run in full. make test sets HEAVY=1; a plain go test leaves out the tests that run the project's
// binaries, and makes long tests short, so that it ends within two minutes.
func Heavy() bool { return os.Getenv("HEAVY") == "1" }
