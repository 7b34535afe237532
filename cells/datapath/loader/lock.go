package loader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"porin.dev/porin/internal/flock"
)

// An agent that was just killed has its lock until the kernel has ended its threads.
const (
	lockWait  = 2 * time.Second
	lockRetry = 10 * time.Millisecond
)

// Lock makes the root ours until the file is closed: an agent removes what is below it and is not its own, so no other
// one may use it. It makes the folder if need be, and answers [ErrRootInUse] when another process has locked it.
func (l *Loader) Lock(ctx context.Context) (*os.File, error) {
	if err := onBPFFS(l.cfg.Root); err != nil {
		return nil, err
	}
	if err := makeFolders(l.cfg.Root); err != nil {
		return nil, err
	}
	root, err := os.Open(l.cfg.Root)
	if err != nil {
		return nil, err
	}
	if err := lockRoot(ctx, root); err != nil {
		return nil, errors.Join(fmt.Errorf("BPF root %s: %w", l.cfg.Root, err), root.Close())
	}
	return root, nil
}

func lockRoot(ctx context.Context, root *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	err := flock.Wait(ctx, root, lockRetry)
	if errors.Is(err, flock.ErrLocked) {
		err = ErrRootInUse
	}
	return err
}
