package cni

import (
	"context"
	"errors"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// statusTimeout bounds the STATUS of an IPAM plugin: runtimes hold locks meanwhile, and ADD and DEL stall.
const statusTimeout = time.Second

// status fails only for what prevents every ADD for a lasting reason: a runtime that hears of a failure makes the node
// NotReady, and its pods are evicted. A full pool is the failure of an ADD.
func (h handler) status(ctx context.Context, c call) error {
	if reason := h.Capacity.Broken(); reason != "" {
		return fail(types.ErrPluginNotAvailable, "no container can be attached: "+reason, "look at porin status, and at the log of porin-agent")
	}
	if !c.delegated() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	err := h.Plugins.Status(ctx, c.delegateCall(), c.config.CNIVersion)
	if err == nil || ctx.Err() != nil { // a slow one is not known to be broken
		return nil
	}
	if printed, ok := errors.AsType[*types.Error](err); ok {
		return printed
	}
	return fail(types.ErrPluginNotAvailable, err.Error(), "look at the IPAM plugin")
}
