package cni

import (
	"context"
	"encoding/json"

	"github.com/containernetworking/cni/pkg/types"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
)

// gcConfig is what GC reads of a network configuration besides.
type gcConfig struct {
	Valid *[]types.GCAttachment `json:"cni.dev/valid-attachments" doc:"GC: the attachments to keep, from the runtime"`
}

// gc takes down every attachment of the network that is not valid and began before the call: a container that is
// attached meanwhile is in no list yet. What could not be taken down is on record and tried again. The IPAM plugin
// comes after that, and not at all when something was withheld: endpoints that are still there use their addresses.
func (h handler) gc(ctx context.Context, c call) error {
	var config gcConfig
	if err := json.Unmarshal(c.raw, &config); err != nil {
		return badConfig("cni.dev/valid-attachments", err.Error())
	}
	if config.Valid == nil {
		return fail(types.ErrInvalidNetworkConfig, "GC without cni.dev/valid-attachments", "the container runtime must list the attachments to keep")
	}
	gc := endpointmanager.GC{Network: c.config.Name, Valid: map[endpoint.Attachment]bool{}, Began: c.began}
	for _, one := range *config.Valid {
		gc.Valid[endpoint.Attachment{ContainerID: one.ContainerID, IfName: one.IfName}] = true
	}
	result := h.Manager.Collect(ctx, gc)
	switch {
	case result.Withheld != nil:
		return fail(types.ErrTryAgainLater, "not all was deleted: "+result.Withheld.Error(),
			"call GC again if the list of valid attachments is right; porin gc --dry-run shows what would go")
	case c.delegated():
		return h.Plugins.GC(ctx, c.delegateCall())
	}
	return nil
}
