package bandwidth_test

import (
	"runtime"
	"testing"

	"porin.dev/porin/internal/testutil"
)

// The main thread cannot end: the tests must not run on it, for they make namespaces on threads that stay in them.
func init() { runtime.LockOSThread() }

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }
