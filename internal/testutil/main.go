package testutil

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Option changes what [Main] does.
type Option func(*options)

type options struct {
	leaks    bool
	ignore   []goleak.Option
	host     bool
	binaries bool
}

// NoLeaks fails the run when goroutines are left after the last test.
func NoLeaks(ignore ...goleak.Option) Option {
	return func(o *options) { o.leaks, o.ignore = true, ignore }
}

// HostUntouched fails the run, as root, when the machine's own network namespace is not as it was: see [HostSnapshot].
func HostUntouched() Option { return func(o *options) { o.host = true } }

// Binaries builds the project's binaries once for all tests, before they lose the way to the network. See [Build]. The
// tests run only with HEAVY=1.
func Binaries() Option { return func(o *options) { o.binaries = true } }

// Main runs the tests and exits. TestMain calls it and nothing else. As root it does so in an inner process with
// namespaces of its own: the tests may change links, mounts and sysctls as they like.
func Main(m *testing.M, opts ...Option) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	os.Exit(o.main(m))
}

func (o *options) main(m *testing.M) int {
	if !root() || inside() {
		return o.run(m)
	}
	code, err := o.outer()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testutil:", err)
		return max(code, 1)
	}
	return code
}

// run is the tests themselves.
func (o *options) run(m *testing.M) int {
	if err := prepareInside(); err != nil {
		fmt.Fprintln(os.Stderr, "testutil: prepare the namespaces of the tests:", err)
		return 1
	}
	code := m.Run()
	if o.leaks && code == 0 {
		if err := goleak.Find(o.ignore...); err != nil {
			fmt.Fprintln(os.Stderr, "testutil: goroutines left after the tests:", err)
			return 1
		}
	}
	return code
}

// Root skips the test without root, or when it would run the project's binaries and [Heavy] tests are left out. With
// REQUIRE_ROOT=1 the test fails instead.
func Root(t testing.TB) {
	t.Helper()
	left := ""
	switch {
	case !root() || !inside():
		left = "needs root, and a TestMain that calls testutil.Main"
	case os.Getenv(envNoBinaries) == "1":
		left = "runs the project's binaries: make test, or HEAVY=1"
	default:
		return
	}
	if os.Getenv("REQUIRE_ROOT") == "1" {
		t.Fatalf("REQUIRE_ROOT=1, and the test cannot run: %s", left)
	}
	t.Skip(left)
}
