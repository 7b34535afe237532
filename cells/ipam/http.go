package ipam

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/internal/httpx"
)

// routes are the calls on /v1/ipam.
type routes struct{ allocator Allocator }

func newRoutes(a Allocator) routes { return routes{a} }

// Mount implements server.Routes.
func (s routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/ipam", httpx.Handler(func(w http.ResponseWriter, _ *http.Request) error {
		return httpx.JSON(w, http.StatusOK, s.allocator.Usage())
	}))
}
