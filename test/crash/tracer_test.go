package crash

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// tracer sees each effect of the processes that were started through it, one after the other, before it happens. They
// are started by one goroutine.
type tracer struct {
	running sync.WaitGroup
	child   *os.File // given to the last process; nil before the first

	mu   sync.Mutex // guards the fields below
	trap trap
	seen []effect // since arm
	hit  *effect  // at which a process was killed, since arm
	errs []error
}

// trap says whether to kill the process at its nth effect, counted from 1. One process is killed at most.
type trap func(n int, e effect) bool

// at is the trap at the kth effect.
func at(k int) trap { return func(n int, _ effect) bool { return n == k } }

// nth is the trap at the kth effect of a kind; of nil, at the kth of all.
func nth(k int, is func(effect) bool) trap {
	count := 0
	return func(_ int, e effect) bool {
		if is == nil || is(e) {
			count++
		}
		return count == k
	}
}

// when is the trap at the first effect of a kind.
func when(call string) trap {
	return func(_ int, e effect) bool { return strings.Contains(e.call, call) }
}

// never is the trap of who only counts.
func never(int, effect) bool { return false }

// arm begins to count, and sets a trap. With nil no process is killed any more.
func (t *tracer) arm(trap trap) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trap, t.seen, t.hit = trap, nil, nil
}

// state is what has happened since arm.
func (t *tracer) state() (seen []effect, hit *effect, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen, t.hit, errors.Join(t.errs...)
}

func (t *tracer) wasHit() bool {
	_, hit, _ := t.state()
	return hit != nil
}

// wrap is a testutil.Wrapper: the command is started by a launcher.
func (t *tracer) wrap(cmd *exec.Cmd) {
	if err := t.wrapIn(cmd); err != nil {
		cmd.Err = err
	}
}

func (t *tracer) wrapIn(cmd *exec.Cmd) error {
	program, err := launcher()
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	patience := unix.Timeval{Sec: 20}
	_ = unix.SetsockoptTimeval(pair[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience)
	if _, err := unix.Write(pair[0], filterBytes()); err != nil {
		return errors.Join(err, unix.Close(pair[0]), unix.Close(pair[1]))
	}
	t.letGo() // the start of the process before is over
	t.child = os.NewFile(uintptr(pair[1]), "report")
	cmd.Env = append(cmd.Environ(), envLaunch+"="+cmd.Path, noCollection)
	cmd.Path, cmd.ExtraFiles = program, []*os.File{t.child}
	t.running.Go(func() {
		if err := t.serve(pair[0]); err != nil {
			t.mu.Lock()
			t.errs = append(t.errs, err)
			t.mu.Unlock()
		}
	})
	return nil
}

// noCollection is for processes that live for a second: collecting garbage is a tenth of what they do.
const noCollection = "GOGC=off"

// letGo closes our copy of a file that a process has as its own.
func (t *tracer) letGo() {
	if t.child != nil {
		_ = t.child.Close()
	}
}

// end waits for the processes to end. It does not end them.
func (t *tracer) end() {
	t.running.Wait()
	t.letGo()
}

// wrapArmed is wrap while a trap is set: it takes some milliseconds.
func (t *tracer) wrapArmed(cmd *exec.Cmd) {
	t.mu.Lock()
	armed := t.trap != nil
	t.mu.Unlock()
	if armed {
		t.wrap(cmd)
	}
}

// serve watches one process, and its children, to their end. The process dies at the effects of all, and the children
// continue without it.
func (t *tracer) serve(socket int) error {
	pid, listener, err := receive(socket)
	_ = unix.Close(socket)
	if err != nil {
		return err
	}
	defer unix.Close(listener)
	p, err := openProcess(pid)
	if err != nil {
		return err
	}
	defer p.close()
	for dead := false; ; {
		n, ok, err := next(listener)
		if err != nil || !ok {
			return err
		}
		if !dead && t.kills(p.effectOfAny(n)) {
			dead = true
			err = unix.Kill(pid, unix.SIGKILL)
		}
		if !dead || !p.has(n.tid) {
			err = proceed(listener, n)
		}
		if err != nil {
			return fmt.Errorf("decide on a system call of process %d: %w", pid, err)
		}
	}
}

// kills notes the effect, if it is one, and says whether it is the one to die at.
func (t *tracer) kills(e effect, is bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !is {
		return false
	}
	t.seen = append(t.seen, e)
	if t.trap == nil || t.hit != nil || !t.trap(len(t.seen), e) {
		return false
	}
	t.hit = &e
	return true
}
