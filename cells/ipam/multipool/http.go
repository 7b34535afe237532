package multipool

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// routes are the calls on /v1/pool, /v1/node and /v1/recovery.
type routes struct {
	backend cluster.Backend
	pools   *PoolAdmin
	nodes   *NodeAdmin
}

func newRoutes(b cluster.Backend, p *PoolAdmin, n *NodeAdmin) routes { return routes{b, p, n} }

// Mount implements server.Routes.
func (s routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/pool", httpx.Handler(s.listPools))
	r.Method(http.MethodGet, "/v1/pool/{name}", httpx.Handler(s.getPool))
	r.Method(http.MethodPut, "/v1/pool/{name}", httpx.Handler(s.putPool))
	r.Method(http.MethodDelete, "/v1/pool/{name}", httpx.Handler(s.deletePool))
	r.Method(http.MethodGet, "/v1/node", httpx.Handler(s.listNodes))
	r.Method(http.MethodPost, "/v1/node/{name}/delete", httpx.Handler(s.deleteNode))
	r.Method(http.MethodPost, "/v1/node/{name}/reset", httpx.Handler(s.resetNode))
	r.Method(http.MethodGet, "/v1/recovery", httpx.Handler(s.getRecovery))
	r.Method(http.MethodPost, "/v1/recovery", httpx.Handler(s.changeRecovery))
}

func (s routes) listPools(w http.ResponseWriter, r *http.Request) error {
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

func (s routes) getPool(w http.ResponseWriter, r *http.Request) error {
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

func (s routes) putPool(w http.ResponseWriter, r *http.Request) error {
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
			return fmt.Errorf("put pool %s: %w", name, ErrChanged)
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

func (s routes) deletePool(w http.ResponseWriter, r *http.Request) error {
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

func (s routes) listNodes(w http.ResponseWriter, r *http.Request) error {
	read := s.nodes.List
	if r.URL.Query().Get("blocks") == "false" {
		read = s.nodes.ListRecords
	}
	nodes, err := read(r.Context())
	if err != nil {
		return err
	}
	list := []v1.Node{}
	for _, n := range nodes {
		list = append(list, nodeOf(n))
	}
	return httpx.JSON(w, http.StatusOK, list)
}

// node is the one that a request names.
func (s routes) node(r *http.Request, key string) (cluster.Node, error) {
	name, err := httpx.Param(r, "name")
	if err != nil {
		return cluster.Node{}, err
	}
	return s.nodes.Find(r.Context(), name, key)
}

func (s routes) deleteNode(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.NodeDeletion](w, r)
	if err != nil {
		return err
	}
	n, err := s.node(r, body.Key)
	if err == nil {
		err = s.nodes.Delete(r.Context(), n.ID, body.MachineIsOff)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s routes) resetNode(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.NodeReset](w, r)
	if err != nil {
		return err
	}
	n, err := s.node(r, body.Key)
	if err == nil {
		err = s.nodes.Reset(r.Context(), n.ID)
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s routes) getRecovery(w http.ResponseWriter, r *http.Request) error {
	state, err := s.recovery(r)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, state)
}

func (s routes) recovery(r *http.Request) (state v1.Recovery, err error) {
	info, _, err := s.backend.Info.Get(r.Context())
	if err != nil {
		return state, err
	}
	state.Epoch, state.Waiting, state.Excluded = info.Epoch, []string{}, []string{}
	if info.Recovery == nil {
		return state, nil
	}
	state.UnderWay, state.Began, state.Reason = true, info.Recovery.Began, info.Recovery.Reason
	state.Excluded = append(state.Excluded, info.Recovery.Excluded...)
	waiting, err := Unconfirmed(r.Context(), s.backend, info)
	for _, id := range waiting {
		state.Waiting = append(state.Waiting, id.String())
	}
	return state, err
}

func (s routes) changeRecovery(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.RecoveryRequest](w, r)
	if err != nil {
		return err
	}
	switch {
	case body.Begin == (body.Exclude != ""):
		err = fault.New(fault.Invalid, "want either begin or exclude")
	case body.Begin:
		err = s.nodes.BeginRecovery(r.Context())
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
