package cni

import (
	"context"
	"errors"

	"porin.dev/porin/cells/endpointmanager"
)

// del takes the attachment down, whatever is known of it: also a link, or addresses of an IPAM plugin, that no record names.
// What could not be done is on record and tried again, so it is a success, but for an agent that is stopping or a caller out
// of time.
func (d desk) del(ctx context.Context, c call) error {
	result := d.Manager.Delete(ctx, c.attachment, endpointmanager.DeleteConfig{
		Began: c.began, Sweep: true, Network: c.config.Name, IPAM: c.plugin(), NetNS: c.netns,
	})
	for _, err := range result.Errors {
		if errors.Is(err, endpointmanager.ErrStopped) || errors.Is(err, endpointmanager.ErrPending) {
			return err
		}
		d.Log.Warn("part of a deletion is not done, and is tried again", "container", c.attachment.ContainerID, "ifname", c.attachment.IfName, "error", err)
	}
	return nil
}
