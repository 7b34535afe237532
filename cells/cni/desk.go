package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/go-chi/chi/v5"
	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/delegate"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
	"porin.dev/porin/internal/netns"
)

// Examiner finds what disagrees about an attachment outside of the container: doctor.Doctor.
type Examiner interface {
	Examine(ctx context.Context, s doctor.Scope) (v1.Doctor, error)
}

// Vitals knows what prevents every ADD for a lasting reason: capacity.Capacity. It does not block.
type Vitals interface{ Broken() (reason string) }

// desk is POST /v1/cni.
type desk struct {
	fx.In

	Log       *slog.Logger
	Manager   endpointmanager.Manager
	Lookup    endpointmanager.Lookup
	Holder    endpointmanager.Holder
	Inspector link.Inspector
	Plugins   *delegate.Plugins
	Examiner  Examiner
	Vitals    Vitals
	Chains    *chains
}

func newDesk(d desk) desk { return d }

// Mount implements server.Routes.
func (d desk) Mount(r chi.Router) { r.Method(http.MethodPost, "/v1/cni", httpx.Handler(d.serve)) }

func (d desk) serve(w http.ResponseWriter, r *http.Request) error {
	if caller, ok := server.CallerOf(r.Context()); !ok || caller.UID != 0 {
		return fault.New(fault.Forbidden, fmt.Sprintf("user %d may not call for a container runtime: that takes root", caller.UID))
	}
	var body v1.CNICall // unknown members are ignored
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, httpx.MaxBody)).Decode(&body); err != nil {
		return fault.Wrap(fault.Invalid, fmt.Errorf("read body: %w", err))
	}
	if body.Version < 1 || body.Version > v1.CNICallVersion {
		return fault.New(fault.NotFound, fmt.Sprintf("no such call: version %d of the plugin's call; this agent knows 1 to %d", body.Version, v1.CNICallVersion))
	}
	c, err := parse(body)
	if err != nil {
		return writeError(w, c.config.CNIVersion, err)
	}
	if err := d.checkHostNetwork(r.Context(), c); err != nil {
		if c.command == "DEL" { // which the plugin does without the agent, whatever this agent waits for
			return err
		}
		return writeError(w, c.config.CNIVersion, err)
	}
	if c.command == "ADD" { // which must hear whether its answer was taken
		return d.add(w, r, c)
	}
	if err := d.do(r.Context(), c); err != nil {
		if isProblem(c.command, err) {
			return err
		}
		return writeError(w, c.config.CNIVersion, err)
	}
	return write(w, http.StatusOK, nil)
}

func (d desk) do(ctx context.Context, c call) error {
	switch c.command {
	case "DEL":
		return d.del(ctx, c)
	case "CHECK":
		return d.check(ctx, c)
	case "GC":
		return d.gc(ctx, c)
	}
	return d.status(ctx, c)
}

// isProblem reports whether the plugin shall do a DEL without the agent: it is stopping, or out of time.
func isProblem(command string, err error) bool {
	return command == "DEL" && (errors.Is(err, endpointmanager.ErrStopped) || errors.Is(err, endpointmanager.ErrPending))
}

// add attaches a container. Its caller takes an answer that it does not get for a failure, and may never ask for a DEL: so what
// this call made is undone when nobody took its answer.
func (d desk) add(w http.ResponseWriter, r *http.Request, c call) error {
	ep, err := d.attach(r.Context(), c)
	if err != nil {
		d.Log.Warn("ADD failed", "container", c.attachment.ContainerID, "ifname", c.attachment.IfName, "error", err)
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
		d.Log.Info("nobody took the answer of a repeated ADD", "container", c.attachment.ContainerID, "ifname", c.attachment.IfName, "error", err)
	default:
		d.Log.Info("nobody took the answer of an ADD, undoing it", "container", c.attachment.ContainerID, "ifname", c.attachment.IfName, "error", err)
		d.Manager.Delete(context.WithoutCancel(r.Context()), c.attachment, endpointmanager.DeleteConfig{Began: ep.Spec.Began})
	}
	return nil
}

func (d desk) attach(ctx context.Context, c call) (endpointmanager.Endpoint, error) {
	spec, err := c.spec()
	if err == nil {
		err = d.Chains.check(spec.Network)
	}
	if err != nil {
		return endpointmanager.Endpoint{}, err
	}
	namespace, err := takeNamespace(ctx, c)
	if err != nil {
		return endpointmanager.Endpoint{}, err
	}
	d.endBroken(ctx, spec, namespace)
	return d.Manager.Create(ctx, spec, namespace)
}

// endBroken takes down the endpoint that a repeated ADD would be answered with, when the container's end of it is not as it was
// made any more.
func (d desk) endBroken(ctx context.Context, spec endpointmanager.Spec, namespace *endpointmanager.Namespace) {
	ep, err := d.Lookup.Get(endpointmanager.ByAttachment(spec.Attachment))
	if err != nil || ep.State != endpointmanager.Ready || ep.Spec.NetNSCookie != namespace.Cookie() {
		return
	}
	difference, err := d.Inspector.Inspect(ctx, ep, namespace)
	if err != nil || difference == "" {
		return
	}
	d.Log.Warn("interface of a repeated ADD is made anew", "container", spec.Attachment.ContainerID, "ifname", spec.Attachment.IfName, "reason", difference)
	d.Manager.Delete(ctx, spec.Attachment, endpointmanager.DeleteConfig{Began: max(0, spec.Began-1)}) // before this ADD
}

// takeNamespace takes the descriptor of the container's network namespace that came with the call. The caller closes it.
func takeNamespace(ctx context.Context, c call) (*endpointmanager.Namespace, error) {
	file, err := server.TakeDescriptor(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", c.command, c.subject(), err)
	}
	namespace, err := endpointmanager.OpenNamespace(file)
	if errors.Is(err, netns.ErrNotNetNS) || errors.Is(err, netns.ErrOwn) {
		return nil, fail(types.ErrInvalidNetNS, fmt.Sprintf("CNI_NETNS %.200q: %v", c.netns, err),
			"the container runtime must set it to the path of the container's network namespace")
	}
	return namespace, err
}

// errOtherNetwork is why an agent in another network namespace than the container runtime changes nothing. The plugin does a
// DEL without such an agent.
var errOtherNetwork = fault.New(fault.Unavailable, "porin-agent runs in another network namespace than the container runtime: "+
	"run it in the host's network (hostNetwork: true)")

// checkHostNetwork compares the caller's network namespace with the agent's: pods of the node are out of reach from another. A
// call that changes something, from the agent's own, tells a manager that waits for it which namespace is the host's. CHECK and
// STATUS may be anybody's probe, and tell nothing.
func (d desk) checkHostNetwork(ctx context.Context, c call) error {
	own, err := netns.OwnCookie()
	if err != nil {
		return err
	}
	caller, _ := server.CallerOf(ctx)
	here := caller.NetNSCookie == own
	switch c.command {
	case "CHECK":
		return nil
	case "STATUS":
		if !here { // no ADD can succeed
			return fail(types.ErrPluginNotAvailable, errOtherNetwork.Error(), "")
		}
		return nil
	}
	if !here {
		return errOtherNetwork
	}
	return d.Holder.Confirm(ctx)
}

// write answers with what the plugin prints. Its error says that nobody took it.
func write(w http.ResponseWriter, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		return err
	}
	if err := http.NewResponseController(w).Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}
