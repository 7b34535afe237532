package datapath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// An agent that was just killed has its claim until the kernel has ended its threads.
const (
	claimWait  = 2 * time.Second
	claimRetry = 10 * time.Millisecond
)

// claim makes the root ours, until the file is closed: what is below it and is not ours is removed, so nobody else may be
// at work there. It makes the folder if need be, and answers [ErrRootInUse] when the root is another agent's.
func (c *Config) claim(ctx context.Context) (*os.File, error) {
	if err := onBPFFS(c.BPFRoot); err != nil {
		return nil, err
	}
	if err := makeFolders(c.BPFRoot); err != nil {
		return nil, err
	}
	root, err := os.Open(c.BPFRoot)
	if err != nil {
		return nil, err
	}
	if err := lockRoot(ctx, root); err != nil {
		return nil, errors.Join(fmt.Errorf("BPF root %s: %w", c.BPFRoot, err), root.Close())
	}
	return root, nil
}

func lockRoot(ctx context.Context, root *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, claimWait)
	defer cancel()
	tick := time.NewTicker(claimRetry)
	defer tick.Stop()
	for {
		err := unix.Flock(int(root.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		select {
		case <-ctx.Done():
			return ErrRootInUse
		case <-tick.C:
		}
	}
}
