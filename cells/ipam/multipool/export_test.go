package multipool

import (
	"slices"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/supervisor"
)

// StartAs is Start on a machine with that boot ID and machine-id.
func StartAs(c *Controller, boot, machine string) error {
	c.rounds.checkpoint.boot, c.rounds.checkpoint.machine = boot, machine
	return c.Start()
}

// Kick makes a round begin soon.
func Kick(c *Controller) { c.rounds.waiters.wake() }

// HasUnownedBlocks reports whether addresses are in use on the machine of a block that is not its own.
func HasUnownedBlocks(c *Controller) bool {
	return slices.ContainsFunc(c.Status().Blocks, func(b OwnBlock) bool { return b.State.notOwned() })
}

// Condition is the health of the controller.
func Condition(c *Controller) supervisor.Condition { return c.Condition() }

// NewReporter is the part of porin status.
func NewReporter(c *Controller) *Controller { return c }

// NewSource is what the node says of resources.
func NewSource(c *Controller) *Controller { return c }

// Saved is the pool as the disk has it.
func Saved(c *Controller, name string) cluster.Pool {
	saved := &checkpoint{dir: c.rounds.cfg.Dir}
	if err := saved.load(c.rounds.cfg.Node); err != nil {
		panic(err)
	}
	for _, p := range saved.Pools {
		if p.Name == name {
			return p
		}
	}
	return cluster.Pool{}
}
