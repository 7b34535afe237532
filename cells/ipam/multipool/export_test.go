package multipool

import "porin.dev/porin/cells/cluster"

// StartAs is Start on a machine with that boot ID and machine-id.
func StartAs(c *Controller, boot, machine string) error {
	c.boot, c.machine = boot, machine
	return c.Start()
}

// Knows reports whether the disk has the other node.
func Knows(c *Controller, id cluster.NodeID) bool {
	saved, err := loadOtherNodes(c.cfg.Dir)
	return err == nil && saved.has(id)
}

// NewRoutes is the part of the API.
var NewRoutes = newRoutes
