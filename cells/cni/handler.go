package cni

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/go-chi/chi/v5"
	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/endpoint"
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

// Capacity says what prevents every ADD for a lasting reason, without blocking: capacity.Capacity.
type Capacity interface{ Broken() (reason string) }

// handler serves POST /v1/cni.
type handler struct {
	fx.In

	Log       *slog.Logger
	Manager   endpointmanager.Manager
	Lookup    endpointmanager.Lookup
	Inspector link.Inspector
	Plugins   *delegate.Plugins
	Examiner  Examiner
	Capacity  Capacity
	Calls     *calls
}

func newHandler(h handler) handler { return h }

// Mount implements server.Routes.
func (h handler) Mount(r chi.Router) { r.Method(http.MethodPost, "/v1/cni", httpx.Handler(h.serve)) }

func (h handler) serve(w http.ResponseWriter, r *http.Request) error {
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
	h.Calls.seen.Store(true)
	c, err := parse(body)
	if err != nil {
		return writeError(w, c.config.CNIVersion, err)
	}
	if err := checkHostNetwork(r.Context(), c); err != nil {
		if c.command == "DEL" { // which the plugin does without the agent, whatever this agent waits for
			return err
		}
		return writeError(w, c.config.CNIVersion, err)
	}
	if c.command == "ADD" { // which must hear whether its answer was taken
		return h.add(w, r, c)
	}
	do := map[string]func(context.Context, call) error{"DEL": h.del, "CHECK": h.check, "GC": h.gc, "STATUS": h.status}[c.command]
	err = do(r.Context(), c)
	switch {
	case err == nil:
		return write(w, http.StatusOK, nil)
	case c.command == "DEL" && (errors.Is(err, endpointmanager.ErrStopped) || errors.Is(err, endpointmanager.ErrPending)):
		return err // the plugin does the DEL without the agent, which is stopping, or out of time
	}
	return writeError(w, c.config.CNIVersion, err)
}

// errOtherNetwork is why an agent in another network namespace than the container runtime changes nothing. The plugin
// does a DEL without such an agent.
var errOtherNetwork = fault.New(fault.Unavailable, "porin-agent runs in another network namespace than the container runtime: "+
	"run it in the host's network (hostNetwork: true)")

// checkHostNetwork compares the caller's network namespace with the agent's: pods of the node are out of reach from
// another.
func checkHostNetwork(ctx context.Context, c call) error {
	own, err := netns.OwnCookie()
	if err != nil {
		return err
	}
	caller, _ := server.CallerOf(ctx)
	switch {
	case caller.NetNSCookie == own, c.command == "CHECK":
		return nil
	case c.command == "STATUS": // no ADD can succeed
		return fail(types.ErrPluginNotAvailable, errOtherNetwork.Error(), "")
	}
	return errOtherNetwork
}

// write answers with the plugin's output. Its error says that the caller did not receive it.
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
