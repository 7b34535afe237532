package delegate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/task"
)

// A program that runs for an attachment holds a socket with an abstract name of the attachment. The agent may be killed
// while one runs, and the next agent calls DEL while that is about to allocate an address that would leak: so it waits
// for the name, which the kernel frees with the last process that has the socket.
const (
	lockPrefix = "@porin-ipam/"
	lockRetry  = 2 * time.Millisecond
	// lockPatience bounds the wait, over all calls: a process that a plugin has left in the background may hold the
	// socket for ever.
	lockPatience = 2 * time.Minute
)

// errLocked is what a call ends with while an earlier one for the attachment runs.
var errLocked = fault.New(fault.Unavailable, "an earlier call for the same interface has not ended")

// locks knows since when attachments are waited for.
type locks struct {
	mu      sync.Mutex // guards the field below
	waiting map[string]time.Time
}

// acquire waits for the attachment's name until ctx ends, which is [errLocked]; or goes on without it when calls have
// waited for so long that no useful process holds it. The caller closes the file, which may be nil.
func (l *locks) acquire(ctx context.Context, name string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	for {
		err := unix.Bind(fd, &unix.SockaddrUnix{Name: lockPrefix + name})
		if err == nil {
			l.remove(name)
			return os.NewFile(uintptr(fd), lockPrefix+name), nil
		}
		if !errors.Is(err, unix.EADDRINUSE) || l.waits(name) > lockPatience {
			l.remove(name)
			return nil, unix.Close(fd)
		}
		if err := task.Sleep(ctx, lockRetry); err != nil {
			return nil, errors.Join(fmt.Errorf("%w: %w", errLocked, err), unix.Close(fd))
		}
	}
}

// waits is how long calls have waited for the name.
func (l *locks) waits(name string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	since, ok := l.waiting[name]
	if !ok {
		since = time.Now()
		l.waiting[name] = since
	}
	return time.Since(since)
}

func (l *locks) remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, name)
}
