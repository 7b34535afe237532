package blocks

import (
	"fmt"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// routes are the calls on /v1/pool.
type routes struct{ pools *Pools }

func newRoutes(p *Pools) routes { return routes{p} }

// Mount implements server.Routes.
func (s routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/pool", httpx.Handler(s.list))
	r.Method(http.MethodGet, "/v1/pool/{name}", httpx.Handler(s.get))
	r.Method(http.MethodPut, "/v1/pool/{name}", httpx.Handler(s.put))
	r.Method(http.MethodDelete, "/v1/pool/{name}", httpx.Handler(s.delete))
}

func (s routes) list(w http.ResponseWriter, r *http.Request) error {
	pools, err := s.pools.List(r.Context())
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, s.specs(r.Context(), pools))
}

func (s routes) get(w http.ResponseWriter, r *http.Request) error {
	name, err := httpx.Param(r, "name")
	if err != nil {
		return err
	}
	p, err := s.pools.Get(r.Context(), name)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, s.specs(r.Context(), []Pool{p})[0])
}

func (s routes) put(w http.ResponseWriter, r *http.Request) error {
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
	p, err := s.pools.Put(r.Context(), poolOf(body))
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, specOf(p))
}

// deleteWait is how long nodes get to give back what they do not use.
const deleteWait = 3 * time.Second

func (s routes) delete(w http.ResponseWriter, r *http.Request) error {
	name, err := httpx.Param(r, "name")
	if err != nil {
		return err
	}
	if err := s.pools.Delete(r.Context(), name, deleteWait); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
