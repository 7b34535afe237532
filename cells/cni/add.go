package cni

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/containernetworking/cni/pkg/types"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/netns"
)

// add attaches a container. A caller that gets no answer takes that for a failure, and may never ask for a DEL: so
// everything that this call made is undone when its caller has not received the answer.
func (h handler) add(w http.ResponseWriter, r *http.Request, c call) error {
	ep, err := h.attach(r.Context(), c)
	if err != nil {
		h.Log.Warn("ADD failed", "container", c.attachment.ContainerID, "ifname", c.attachment.IfName, "error", err)
		return writeError(w, c.config.CNIVersion, err)
	}
	body, err := c.resultOf(ep)
	if err == nil {
		err = write(w, http.StatusOK, body)
	} else {
		err = errors.Join(err, writeError(w, c.config.CNIVersion, err))
	}
	switch {
	case err == nil:
	case ep.Renewed: // an earlier call made it, whose answer was taken
		h.Log.Info("nobody took the answer of a repeated ADD", "container", c.attachment.ContainerID, "ifname", c.attachment.IfName, "error", err)
	default:
		h.Log.Info("nobody took the answer of an ADD, undoing it", "container", c.attachment.ContainerID, "ifname", c.attachment.IfName, "error", err)
		h.Manager.Delete(context.WithoutCancel(r.Context()), c.attachment, endpoint.DeleteConfig{Began: ep.Spec.Began})
	}
	return nil
}

func (h handler) attach(ctx context.Context, c call) (endpoint.Endpoint, error) {
	spec, err := c.spec()
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	namespace, err := receiveNamespace(ctx, c)
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	return h.Manager.Create(ctx, spec, namespace)
}

// receiveNamespace opens the descriptor of the container's network namespace that came with the call. The caller closes
// it.
func receiveNamespace(ctx context.Context, c call) (*endpoint.Namespace, error) {
	file, err := server.TakeDescriptor(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", c.command, c.subject(), err)
	}
	namespace, err := endpoint.OpenNamespace(file)
	if errors.Is(err, netns.ErrNotNetNS) || errors.Is(err, netns.ErrOwn) {
		return nil, fail(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %.200q: %v", c.netns, err),
			"the container runtime must set it to the path of the container's network namespace")
	}
	return namespace, err
}
