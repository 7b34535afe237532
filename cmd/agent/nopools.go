package main

import (
	"fmt"
	"net/http"

	"github.com/go-chi/chi/v5"

	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// noPools answers the calls about pools and nodes in a mode that has none: the error says why.
type noPools struct{ mode string }

// Mount implements server.Routes.
func (n noPools) Mount(r chi.Router) {
	for path, methods := range map[string][]string{
		"/v1/pool":        {http.MethodGet},
		"/v1/pool/{name}": {http.MethodGet, http.MethodPut, http.MethodDelete},
		"/v1/node":        {http.MethodGet},
		"/v1/recovery":    {http.MethodGet, http.MethodPost},

		"/v1/node/{name}/delete": {http.MethodPost},
		"/v1/node/{name}/reset":  {http.MethodPost},
	} {
		for _, method := range methods {
			r.Method(method, path, httpx.Handler(n.refuse))
		}
	}
}

func (n noPools) refuse(http.ResponseWriter, *http.Request) error {
	return fault.New(fault.NotFound, fmt.Sprintf("this agent runs --ipam-mode %s: pools and nodes are there in %s", n.mode, ipam.ModeMultiPool))
}
