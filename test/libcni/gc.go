//go:build libcni12

package main

import (
	"context"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

func (r *runtime) status() call {
	return call{"STATUS", func(ctx context.Context) error { return r.conf.GetStatusNetworkList(ctx, r.list) }}
}

// gc spares the container.
func (r *runtime) gc() call {
	return call{"GC", func(ctx context.Context) error {
		valid := []types.GCAttachment{{ContainerID: r.attachment.ContainerID, IfName: r.attachment.IfName}}
		return r.conf.GCNetworkList(ctx, r.list, &libcni.GCArgs{ValidAttachments: valid})
	}}
}
