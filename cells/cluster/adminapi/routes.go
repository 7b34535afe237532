package adminapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// Agent is the agent of this node.
type Agent interface {
	// BeginRecovery begins a recovery, or records that one is to begin when the store answers: then it returns false.
	BeginRecovery(ctx context.Context) (begun bool, err error)
	// RecoveryRequested reports whether a recovery is to begin when the store answers.
	RecoveryRequested() bool
}

// Routes are the calls on /v1/pool and /v1/recovery.
type Routes struct {
	backend cluster.Backend
	agent   Agent
	pools   *admin.Pools
	nodes   *admin.Nodes
}

// NewRoutes returns the part of the API.
func NewRoutes(b cluster.Backend, a Agent, p *admin.Pools, n *admin.Nodes) Routes {
	return Routes{b, a, p, n}
}

// Mount implements server.Routes.
func (s Routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/pool", httpx.Handler(s.listPools))
	r.Method(http.MethodGet, "/v1/pool/{name}", httpx.Handler(s.getPool))
	r.Method(http.MethodPut, "/v1/pool/{name}", httpx.Handler(s.putPool))
	r.Method(http.MethodDelete, "/v1/pool/{name}", httpx.Handler(s.deletePool))
	r.Method(http.MethodGet, "/v1/recovery", httpx.Handler(s.getRecovery))
	r.Method(http.MethodPost, "/v1/recovery", httpx.Handler(s.changeRecovery))
}

func (s Routes) listPools(w http.ResponseWriter, r *http.Request) error {
	pools, err := s.pools.List(r.Context())
	if err != nil {
		return err
	}
	if r.URL.Query().Get("use") == "false" {
		list := []v1.PoolSpec{}
		for _, p := range pools {
			list = append(list, specOf(p))
		}
		return httpx.JSON(w, http.StatusOK, list)
	}
	return httpx.JSON(w, http.StatusOK, s.specs(r.Context(), pools))
}

func (s Routes) getPool(w http.ResponseWriter, r *http.Request) error {
	name, err := httpx.Param(r, "name")
	if err != nil {
		return err
	}
	p, err := s.pools.Get(r.Context(), name)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, s.specs(r.Context(), []cluster.Pool{p})[0])
}

func (s Routes) putPool(w http.ResponseWriter, r *http.Request) error {
	name, err := httpx.Param(r, "name")
	if err != nil {
		return err
	}
	body, err := httpx.Decode[v1.PoolSpec](w, r)
	if err != nil {
		return err
	}
	if body.Name != "" && body.Name != name {
		return fault.New(fault.Invalid, fmt.Sprintf("name %.64q: the path says %.64q", body.Name, name))
	}
	body.Name = name
	if err := checkRights(s.backend, "pool create, or pool set"); err != nil {
		return err
	}
	wanted := poolOf(body)
	if body.Version != "" {
		now, err := s.pools.Get(r.Context(), name)
		if err != nil {
			return err
		}
		if shownVersion(now.Version) != body.Version {
			return fmt.Errorf("put pool %s: %w", name, admin.ErrChanged)
		}
		wanted.Version = now.Version
	}
	p, err := s.pools.Put(r.Context(), wanted)
	if err != nil {
		return err
	}
	specs := []v1.PoolSpec{specOf(p)}
	s.warn(r.Context(), []cluster.Pool{p}, specs)
	return httpx.JSON(w, http.StatusOK, specs[0])
}

func (s Routes) deletePool(w http.ResponseWriter, r *http.Request) error {
	name, err := httpx.Param(r, "name")
	if err != nil {
		return err
	}
	if err := checkRights(s.backend, "pool delete"); err != nil {
		return err
	}
	if err := s.pools.Delete(r.Context(), name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s Routes) getRecovery(w http.ResponseWriter, r *http.Request) error {
	state, err := s.recovery(r)
	if errors.Is(err, cluster.ErrUnavailable) && s.agent.RecoveryRequested() {
		state, err = requestedRecovery(), nil
	}
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, state)
}

// requestedRecovery is all that is known of one while the store is away.
func requestedRecovery() v1.Recovery {
	return v1.Recovery{Requested: true, Unwritten: []v1.UnwrittenNode{}}
}

func (s Routes) recovery(r *http.Request) (state v1.Recovery, err error) {
	state.Unwritten = []v1.UnwrittenNode{}
	info, _, err := s.backend.Info.Get(r.Context())
	if err != nil || info.Recovery == nil {
		return state, err
	}
	state.UnderWay, state.Began, state.Reason = true, info.Recovery.Began, info.Recovery.Reason
	unwritten, err := cluster.UnwrittenNodes(r.Context(), s.backend, info)
	for _, n := range unwritten {
		state.Unwritten = append(state.Unwritten, v1.UnwrittenNode{Node: n.Node.String(), Conflicts: n.OtherOwners})
	}
	return state, err
}

func (s Routes) changeRecovery(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.RecoveryRequest](w, r)
	if err != nil {
		return err
	}
	switch {
	case body.Begin == body.End || body.Force && !body.End:
		err = fault.New(fault.Invalid, "want either begin or end; force is for end")
	case body.Begin:
		begun, err := s.agent.BeginRecovery(r.Context())
		if err == nil && !begun {
			return httpx.JSON(w, http.StatusAccepted, requestedRecovery())
		}
		if err != nil {
			return err
		}
	default:
		if err = checkRights(s.backend, "ipam recover --end"); err == nil {
			err = admin.EndRecovery(r.Context(), s.backend, body.Force)
		}
	}
	if err != nil {
		return err
	}
	return s.getRecovery(w, r)
}

// checkRights refuses a command of porin that the role of an agent does not cover.
func checkRights(b cluster.Backend, command string) error {
	if !b.AgentRights {
		return nil
	}
	return fault.New(fault.Forbidden, fmt.Sprintf("with --store kubernetes an agent has no right to do this: use %s, which has your kubeconfig's rights", b.Command(command)))
}
