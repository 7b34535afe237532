package multipool

import "porin.dev/porin/cells/cluster"

// StartAs is Start on a machine with that boot ID.
func StartAs(c *Controller, boot string) error {
	c.boot = boot
	return c.Start()
}

// Knows reports whether the checkpoint on the disk has the other node.
func Knows(c *Controller, id cluster.NodeID) bool {
	saved, err := loadCheckpoint(c.cfg)
	if err != nil {
		return false
	}
	for _, known := range saved.Nodes {
		if known == id {
			return true
		}
	}
	return false
}
