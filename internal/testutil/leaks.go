package testutil

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// OpenFiles counts the open files of this process.
func OpenFiles(t testing.TB) int {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

// ThreadsAway counts the threads of this process that are in another network namespace than the main thread.
func ThreadsAway(t testing.TB) (away int) {
	t.Helper()
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	threads, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil || len(threads) == 0 {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	for _, thread := range threads {
		name, err := os.Readlink(thread)
		if err == nil && name != own { // a thread that ended meanwhile is nowhere
			away++
		}
	}
	return away
}

// NoThreadsAway waits for threads that are about to end, such as the maker of the test's namespace.
func NoThreadsAway(t testing.TB) {
	t.Helper()
	Eventually(t, func() error {
		if away := ThreadsAway(t); away != 0 {
			return fmt.Errorf("%d threads are left in another namespace", away)
		}
		return nil
	})
}
