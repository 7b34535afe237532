package server

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"go.uber.org/fx"
)

// Claim is the right to be the agent of a socket. The agent has it while it serves, and with [Hold] from before its
// first cell starts until after its last has stopped. It is for one goroutine at a time, as the hooks of fx are.
type Claim struct {
	path    string
	holders int
	lock    *lock // nil without holders
}

// NewClaim takes nothing yet.
func NewClaim(cfg Config) (*Claim, error) {
	return &Claim{path: cfg.Socket}, cfg.Validate()
}

// Hold makes the agent claim its socket before any cell starts that is listed after it: list it first. A second agent
// then fails before it has touched what is in the kernel, which is the first one's.
func Hold() fx.Option {
	// A module of its own: what a module invokes comes before what the program itself invokes.
	return fx.Module("claim", fx.Invoke(func(lc fx.Lifecycle, c *Claim) {
		lc.Append(fx.Hook{OnStart: c.Take, OnStop: func(context.Context) error { return c.Release() }})
	}))
}

// Take claims the socket and removes what a killed agent left of it. Another agent that lives is [ErrInUse]; what is
// no socket is left alone and refused. It may be taken more than once, and is given up with as many releases.
func (c *Claim) Take(ctx context.Context) error {
	if c.holders == 0 {
		if err := c.take(ctx); err != nil {
			return err
		}
	}
	c.holders++
	return nil
}

func (c *Claim) take(ctx context.Context) (err error) {
	if err := makeParent(filepath.Dir(c.path)); err != nil {
		return fmt.Errorf("make room for socket %s: %w", c.path, err)
	}
	lock, err := takeLock(c.path + ".lock")
	if err != nil {
		return inUse(ctx, c.path, err)
	}
	if err := vacate(ctx, c.path); err != nil {
		return errors.Join(err, lock.release())
	}
	c.lock = lock
	return nil
}

// Release gives up what one Take has taken.
func (c *Claim) Release() error {
	if c.holders--; c.holders > 0 {
		return nil
	}
	lock := c.lock
	c.lock = nil
	return lock.release()
}
