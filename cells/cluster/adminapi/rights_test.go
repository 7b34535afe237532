package adminapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/adminapi"
)

// TestAgentRights: an agent whose role does not cover a command refuses it before it asks the store, which this backend
// lacks.
func TestAgentRights(t *testing.T) {
	b := cluster.Backend{AgentRights: true}
	routes := chi.NewRouter()
	adminapi.NewRoutes(b, nil, admin.NewPools(b), admin.NewNodes(b)).Mount(routes)
	adminapi.NewNodeRoutes(b, admin.NewNodes(b)).Mount(routes)
	for _, c := range []struct{ method, path, body, command string }{
		{http.MethodPut, "/v1/pool/blue", `{"name": "blue"}`, "use porin cluster pool create, or pool set"},
		{http.MethodDelete, "/v1/pool/blue", "", "use porin cluster pool delete"},
		{http.MethodPost, "/v1/node/one/delete", "{}", "use porin cluster node delete"},
		{http.MethodPost, "/v1/node/one/reset", "{}", "use porin cluster node reset"},
		{http.MethodPost, "/v1/recovery", `{"end": true}`, "use porin cluster ipam recover --end"},
	} {
		w := httptest.NewRecorder()
		routes.ServeHTTP(w, httptest.NewRequest(c.method, c.path, strings.NewReader(c.body)))
		if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), c.command) {
			t.Errorf("%s %s: %d %s, want %d and the command %q", c.method, c.path, w.Code, w.Body, http.StatusForbidden, c.command)
		}
	}
}
