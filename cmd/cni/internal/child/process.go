package child

import (
	"errors"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// process is a program that runs.
type process struct {
	pid, pidfd int
	in, out    int    // our ends of its pipes; -1 when closed
	stdin      []byte // what it has yet to be given
	stdout     []byte
	most       int
}

// start returns when the program runs.
func start(c Command) (*process, error) {
	var in, out [2]int
	if err := unix.Pipe2(in[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	defer unix.Close(in[0])
	p := &process{pidfd: -1, in: in[1], out: -1, stdin: c.Stdin, most: c.Most}
	err := unix.Pipe2(out[:], unix.O_CLOEXEC)
	if err == nil {
		defer unix.Close(out[1])
		p.out = out[0]
		err = errors.Join(unix.SetNonblock(p.in, true), unix.SetNonblock(p.out, true))
	}
	if err == nil {
		files := []uintptr{uintptr(in[0]), uintptr(out[1]), uintptr(c.Stderr)}
		if c.Hold >= 0 {
			files = append(files, uintptr(c.Hold))
		}
		p.pid, err = syscall.ForkExec(c.Path, []string{c.Path}, &syscall.ProcAttr{
			Env: c.Env, Files: files,
			Sys: &syscall.SysProcAttr{Setpgid: true, PidFD: &p.pidfd},
		})
	}
	if err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *process) close() {
	for _, fd := range []*int{&p.in, &p.out, &p.pidfd} {
		shut(fd)
	}
}

func shut(fd *int) {
	if *fd >= 0 {
		_ = unix.Close(*fd)
	}
	*fd = -1
}

// serve gives and takes until the program has ended and all that it printed is read.
func (p *process) serve(deadline time.Time) error {
	for {
		ended, err := p.await(deadline)
		if err != nil {
			return err
		}
		p.write()
		if err := p.read(); err != nil || ended {
			return err // what came before the end is read
		}
	}
}

// await waits until there is something to do, and tells whether the program has ended.
func (p *process) await(deadline time.Time) (ended bool, err error) {
	left := time.Until(deadline)
	if left <= 0 {
		return false, ErrTimeout
	}
	files := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}, {Fd: int32(p.out), Events: unix.POLLIN}, {Fd: int32(p.in), Events: unix.POLLOUT}}
	_, err = unix.Poll(files, int(left.Milliseconds())+1)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return false, err
	}
	return files[0].Revents != 0, nil
}

// write gives the program as much as it takes. It need not want it.
func (p *process) write() {
	for p.in >= 0 {
		n, err := unix.Write(p.in, p.stdin)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return
		case err == nil:
			p.stdin = p.stdin[n:]
		}
		if len(p.stdin) == 0 || err != nil && !errors.Is(err, unix.EINTR) {
			shut(&p.in)
		}
	}
}

// read takes what the program has printed so far.
func (p *process) read() error {
	for buf := make([]byte, 4096); p.out >= 0; {
		n, err := unix.Read(p.out, buf)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR):
		case err != nil || n == 0:
			shut(&p.out)
		default:
			p.stdout = append(p.stdout, buf[:n]...)
		}
		if len(p.stdout) > p.most {
			return ErrFlood
		}
	}
	return nil
}

// reapTimeout bounds the wait for a program that is killed: one that hangs in the kernel ends when that lets it.
const reapTimeout = time.Second

// kill ends the program, and those that it has started and that did not leave its group.
func (p *process) kill() {
	_ = unix.Kill(-p.pid, unix.SIGKILL)
	shut(&p.in)
	shut(&p.out)
	for deadline := time.Now().Add(reapTimeout); ; {
		ended, err := p.await(deadline)
		if ended {
			_, _ = p.reap()
		}
		if ended || err != nil {
			return
		}
	}
}

// reap lets go of a program that has ended.
func (p *process) reap() (status unix.WaitStatus, err error) {
	for {
		if _, err = unix.Wait4(p.pid, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			return status, err
		}
	}
}
