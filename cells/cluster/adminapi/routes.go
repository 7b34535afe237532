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
	// BeginRecovery begins a recovery, or notes that one is to begin when the store answers: then it returns false.
	BeginRecovery(ctx context.Context) (begun bool, err error)
	// RecoveryRequested reports whether a recovery is noted that has not begun.
	RecoveryRequested() (bool, error)
	// RolledBackPools returns the pools, as they were, that the store has lost, or changes of which it has lost.
	RolledBackPools() []cluster.Pool
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
	if err := s.pools.Delete(r.Context(), name); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s Routes) getRecovery(w http.ResponseWriter, r *http.Request) error {
	state, err := s.recovery(r)
	if errors.Is(err, cluster.ErrUnavailable) && s.recoveryRequested() {
		state, err = requestedRecovery(), nil
	}
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, state)
}

func (s Routes) recoveryRequested() bool {
	requested, err := s.agent.RecoveryRequested()
	return err == nil && requested
}

// requestedRecovery is all that is known of one while the store is away.
func requestedRecovery() v1.Recovery {
	return v1.Recovery{Requested: true, Waiting: []v1.Unconfirmed{}, Excluded: []string{}}
}

func (s Routes) recovery(r *http.Request) (state v1.Recovery, err error) {
	info, _, err := s.backend.Info.Get(r.Context())
	if err == nil {
		state.LostPools, err = s.lostPools(r)
	}
	if err != nil {
		return state, err
	}
	state.Epoch, state.Waiting, state.Excluded = info.Epoch, []v1.Unconfirmed{}, []string{}
	if info.Recovery == nil {
		return state, nil
	}
	state.UnderWay, state.Began, state.Reason = true, info.Recovery.Began, info.Recovery.Reason
	state.Excluded = append(state.Excluded, info.Recovery.Excluded...)
	waiting, err := cluster.UnconfirmedNodes(r.Context(), s.backend, info)
	for _, n := range waiting {
		state.Waiting = append(state.Waiting, v1.Unconfirmed{Node: n.Node.String(), Conflicts: n.OtherOwners})
	}
	return state, err
}

// lostPools are those of which this node has seen more than the store has.
func (s Routes) lostPools(r *http.Request) (list []v1.LostPool, err error) {
	for _, was := range s.agent.RolledBackPools() {
		one := v1.LostPool{Name: was.Name, Command: admin.PoolCommand(was, nil), Gone: true}
		now, err := s.pools.Get(r.Context(), was.Name)
		switch {
		case err == nil:
			one.Command, one.Gone = admin.PoolCommand(was, &now), false
		case !errors.Is(err, admin.ErrNoPool):
			return nil, err
		}
		list = append(list, one)
	}
	return list, nil
}

func (s Routes) changeRecovery(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.RecoveryRequest](w, r)
	if err != nil {
		return err
	}
	switch {
	case body.Begin == (body.Exclude != ""):
		err = fault.New(fault.Invalid, "want either begin or exclude")
	case body.Begin:
		begun, err := s.agent.BeginRecovery(r.Context())
		if err == nil && !begun {
			return httpx.JSON(w, http.StatusAccepted, requestedRecovery())
		}
		if err != nil {
			return err
		}
	default:
		var id cluster.NodeID
		if id, err = cluster.ParseNodeID(body.Exclude); err != nil {
			return fault.Wrap(fault.Invalid, err)
		}
		err = s.nodes.Exclude(r.Context(), id)
	}
	if err != nil {
		return err
	}
	return s.getRecovery(w, r)
}
