package main

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"go.uber.org/fx"

	"porin.dev/porin/api/v1/openapi/openapitest"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/server"
	"porin.dev/porin/internal/cell"
)

func TestNoPools(t *testing.T) {
	r := chi.NewRouter()
	noPools{mode: ipam.ModePodCIDR}.Mount(r)
	for _, call := range [][2]string{
		{"GET", "/v1/pool"}, {"GET", "/v1/pool/a"}, {"PUT", "/v1/pool/a"}, {"DELETE", "/v1/pool/a"},
	} {
		got := httptest.NewRecorder()
		r.ServeHTTP(got, httptest.NewRequest(call[0], call[1], strings.NewReader("{}")))
		const want = "this agent runs --ipam-mode pod-cidr: pools are there in multi-pool, and nodes there and with --store kubernetes"
		if got.Code != http.StatusNotFound || !strings.Contains(got.Body.String(), want) {
			t.Errorf("%s %s: %d %s", call[0], call[1], got.Code, got.Body)
		}
	}
}

// TestRoutesOfEveryMode, whether it can do what they ask or not.
func TestRoutesOfEveryMode(t *testing.T) {
	for _, mode := range []string{ipam.ModePodCIDR, ipam.ModeMultiPool, ipam.ModeDelegated} {
		cfg := testConfig(t)
		cfg.IPAM.Mode = mode
		if mode == ipam.ModePodCIDR {
			cfg.IPAM.PodCIDRs = []string{"10.0.0.0/24"}
		}
		var s *server.Server
		app := fx.New(Cells(cfg), fx.Supply(slog.New(slog.DiscardHandler)), cell.Quiet, fx.Populate(&s))
		if err := app.Err(); err != nil {
			t.Fatal(err)
		}
		if err := openapitest.CheckRoutes(s.Routes()); err != nil {
			t.Errorf("mode %s: %v", mode, err)
		}
	}
}
