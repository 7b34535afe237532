package child

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Command is what to run.
type Command struct {
	Path   string
	Env    []string
	Stdin  []byte
	Stderr int // file descriptor that it writes its errors to
	Most   int // bytes that it may print
	Hold   int // file descriptor that it has open until it ends; -1 for none
}

// The ways in which a program that was started is killed.
var (
	ErrTimeout = errors.New("it did not end in time")
	ErrFlood   = errors.New("it printed too much")
)

// Run runs the program and returns what it printed and how it ended. With an error it was not started, or killed.
func Run(c Command, deadline time.Time) (stdout []byte, status unix.WaitStatus, err error) {
	p, err := start(c)
	if err != nil {
		return nil, 0, fmt.Errorf("start %s: %w", c.Path, err)
	}
	defer p.close()
	if err := p.serve(deadline); err != nil {
		p.kill()
		return nil, 0, err
	}
	status, err = p.reap()
	return p.stdout, status, err
}
