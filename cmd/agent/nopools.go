package main

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// noPools answers the calls about pools, and about nodes, of an agent that has none: the error says why.
type noPools struct {
	mode     string
	hasNodes bool // other cells answer the calls about nodes
}

// Mount implements server.Routes.
func (n noPools) Mount(r chi.Router) {
	n.mount(r, map[string][]string{
		"/v1/pool":        {http.MethodGet},
		"/v1/pool/{name}": {http.MethodGet, http.MethodPut, http.MethodDelete},
		"/v1/recovery":    {http.MethodGet, http.MethodPost},
	})
	if !n.hasNodes {
		n.mount(r, map[string][]string{
			"/v1/node":               {http.MethodGet},
			"/v1/node/{name}/delete": {http.MethodPost},
			"/v1/node/{name}/reset":  {http.MethodPost},
		})
	}
}

func (n noPools) mount(r chi.Router, calls map[string][]string) {
	for path, methods := range calls {
		for _, method := range methods {
			r.Method(method, path, httpx.Handler(n.refuse))
		}
	}
}

func (n noPools) refuse(http.ResponseWriter, *http.Request) error {
	return fault.New(fault.NotFound, fmt.Sprintf("this agent runs --ipam-mode %s: pools are there in %s, and nodes there and with --store kubernetes", n.mode, ipam.ModeMultiPool))
}
