package cni

import (
	"context"
	"errors"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
)

// del takes the attachment down, whatever is known of it: also a link, or addresses of an IPAM plugin, that no record
// names. What could not be done is on record and tried again, so it counts as a success. It fails only when the agent
// stops or the caller runs out of time.
func (h handler) del(ctx context.Context, c call) error {
	result := h.Manager.Delete(ctx, c.attachment, endpoint.DeleteConfig{
		Began: c.began, Sweep: true, Network: c.config.Name, IPAM: c.plugin(), NetNS: c.netns,
	})
	for _, err := range result.Errors {
		if errors.Is(err, endpointmanager.ErrStopped) || errors.Is(err, endpointmanager.ErrPending) {
			return err
		}
		h.Log.Warn("part of a deletion is not done, and is tried again", "container", c.attachment.ContainerID, "ifname", c.attachment.IfName, "error", err)
	}
	return nil
}
