package main

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// noPools answers the calls on /v1/pool in a mode that has no pools: who makes one should hear why it is not there.
type noPools struct{ mode string }

// Mount implements server.Routes.
func (n noPools) Mount(r chi.Router) {
	for path, methods := range map[string][]string{
		"/v1/pool":        {http.MethodGet},
		"/v1/pool/{name}": {http.MethodGet, http.MethodPut, http.MethodDelete},
	} {
		for _, method := range methods {
			r.Method(method, path, httpx.Handler(n.refuse))
		}
	}
}

func (n noPools) refuse(http.ResponseWriter, *http.Request) error {
	return fault.New(fault.NotFound, fmt.Sprintf("this agent runs --ipam-mode %s: pools are there in %s", n.mode, ipam.ModeMultiPool))
}
