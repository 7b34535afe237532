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
	Chains    *chains
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
	if err := h.do(r.Context(), c); err != nil {
		if isProblem(c.command, err) {
			return err
		}
		return writeError(w, c.config.CNIVersion, err)
	}
	return write(w, http.StatusOK, nil)
}

func (h handler) do(ctx context.Context, c call) error {
	switch c.command {
	case "DEL":
		return h.del(ctx, c)
	case "CHECK":
		return h.check(ctx, c)
	case "GC":
		return h.gc(ctx, c)
	}
	return h.status(ctx, c)
}

// isProblem reports whether the plugin shall do a DEL without the agent: it is stopping, or out of time.
func isProblem(command string, err error) bool {
	return command == "DEL" && (errors.Is(err, endpointmanager.ErrStopped) || errors.Is(err, endpointmanager.ErrPending))
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
