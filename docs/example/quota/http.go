package quota

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/internal/httpx"
)

// usage is the answer to GET /v1/quota.
type usage struct {
	Limit int            `json:"limit"` // 0: none
	Used  map[string]int `json:"used"`  // by namespace
}

// routes are the quota's part of the API.
type routes struct{ step *Step }

func newRoutes(s *Step) routes { return routes{s} }

// Mount implements server.Routes.
func (q routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/quota", httpx.Handler(q.get))
}

func (q routes) get(w http.ResponseWriter, _ *http.Request) error {
	return httpx.JSON(w, http.StatusOK, usage{Limit: q.step.limit, Used: q.step.Used()})
}
