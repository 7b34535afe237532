package main

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// mountNodes gives a fake agent two nodes; one is silent.
func mountNodes(r chi.Router) {
	recovery := v1.Recovery{Unwritten: []v1.UnwrittenNode{}}
	r.Method(http.MethodGet, "/v1/node", httpx.Handler(func(w http.ResponseWriter, _ *http.Request) error {
		return httpx.JSON(w, http.StatusOK, []v1.Node{
			{Name: "one", Key: "aaaaaaaaaa", State: "active", Created: time.Now(), LastContact: time.Now(), Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Blocks: []v1.NodeBlock{{CIDR: netip.MustParsePrefix("10.1.0.0/26"), Pool: "blue"}}},
			{Name: "two", Key: "bbbbbbbbbb", State: "active", Created: time.Now(), Blocks: []v1.NodeBlock{}},
		})
	}))
	r.Method(http.MethodGet, "/v1/peer", httpx.Handler(func(w http.ResponseWriter, _ *http.Request) error {
		return httpx.JSON(w, http.StatusOK, []v1.Peer{
			{Name: "three", Key: "cccccccccc", Addresses: []netip.Addr{}, Routing: "external", Missing: true, Blocks: []v1.PeerBlock{}},
			{
				Name: "two", Key: "bbbbbbbbbb", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("2001:db8::2")}, Routing: "native",
				Blocks: []v1.PeerBlock{
					{CIDR: netip.MustParsePrefix("10.1.0.64/26"), Reach: "route"},
					{CIDR: netip.MustParsePrefix("fd00:1::/64"), Error: "somebody else has a route to fd00:1::/64: it stays"},
				},
			},
		})
	}))
	r.Method(http.MethodPost, "/v1/node/{name}/delete", httpx.Handler(func(w http.ResponseWriter, r *http.Request) error {
		body, err := httpx.Decode[v1.NodeDeletion](w, r)
		if err != nil {
			return err
		}
		if chi.URLParam(r, "name") != "one" && (!body.MachineIsOff || body.Key != "bbbbbbbbbb") {
			return fault.New(fault.Conflict, "its pods may run")
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}))
	r.Method(http.MethodPost, "/v1/node/{name}/reset", httpx.Handler(func(w http.ResponseWriter, _ *http.Request) error {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}))
	r.Method(http.MethodGet, "/v1/recovery", httpx.Handler(func(w http.ResponseWriter, _ *http.Request) error {
		return httpx.JSON(w, http.StatusOK, recovery)
	}))
	r.Method(http.MethodPost, "/v1/recovery", httpx.Handler(func(w http.ResponseWriter, r *http.Request) error {
		body, err := httpx.Decode[v1.RecoveryRequest](w, r)
		if err != nil {
			return err
		}
		switch {
		case body.Begin:
			recovery = v1.Recovery{UnderWay: true, Began: time.Now(), Reason: "an administrator said so", Unwritten: []v1.UnwrittenNode{
				{Node: "two/bbbbbbbbbb", Conflicts: []string{"one/aaaaaaaaaa"}}, {Node: "three/cccccccccc"},
			}}
		case !body.Force:
			return fault.New(fault.Conflict, "nodes have not written their blocks: two/bbbbbbbbbb, three/cccccccccc")
		default:
			recovery = v1.Recovery{Unwritten: []v1.UnwrittenNode{}}
		}
		return httpx.JSON(w, http.StatusOK, recovery)
	}))
}
