package multipool

import "porin.dev/porin/cells/cluster"

// StartAs is Start on a machine with that boot ID.
func StartAs(c *Controller, boot string) error {
	c.boot = boot
	return c.Start()
}

// Knows reports whether the disk has the other node.
func Knows(c *Controller, id cluster.NodeID) bool {
	saved, err := loadOtherNodes(c.cfg.Dir)
	return err == nil && saved.has(id)
}

// NewRoutes is the part of the API.
var NewRoutes = newRoutes
