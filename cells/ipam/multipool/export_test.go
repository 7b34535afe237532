package multipool

import (
	"slices"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/supervisor"
)

// StartAs is Start on a machine with that boot ID and machine-id.
func StartAs(c *Controller, boot, machine string) error {
	c.checkpoint.boot, c.checkpoint.machine = boot, machine
	return c.Start()
}

// HasUnownedBlocks reports whether addresses are in use on the machine of a block that is not its own.
func HasUnownedBlocks(c *Controller) bool {
	return slices.ContainsFunc(c.Status().Blocks, func(b BlockStatus) bool { return blockState(b.State).notOwned() })
}

// Condition is the health of the controller.
func Condition(c *Controller) supervisor.Condition { return health{c}.Condition() }

// NewReporter is the part of porin status.
var NewReporter = newReporter

// NewSource is what the node says of resources.
func NewSource(c *Controller) source { return source{c} }

// Saved is the pool as the disk has it.
func Saved(c *Controller, name string) cluster.Pool {
	saved := newSavedPools(c.cfg.Dir)
	if err := saved.load(); err != nil {
		panic(err)
	}
	return saved.byName[name]
}
