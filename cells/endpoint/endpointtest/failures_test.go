package endpointtest

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
)

// failures is a test whose failure another test expects.
type failures struct {
	testing.TB

	mu   sync.Mutex // guards the field below
	said []string
}

// failuresOf returns with what the test fails.
func failuresOf(t *testing.T, test func(t testing.TB)) []string {
	t.Helper()
	f := &failures{TB: t}
	done := make(chan struct{})
	go func() { // which Fatal ends
		defer close(done)
		test(f)
	}()
	<-done
	return f.said
}

// Errorf implements testing.TB.
func (f *failures) Errorf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.said = append(f.said, fmt.Sprintf(format, args...))
}

// Error implements testing.TB.
func (f *failures) Error(args ...any) { f.Errorf("%s", fmt.Sprint(args...)) }

// Fatalf implements testing.TB.
func (f *failures) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}
