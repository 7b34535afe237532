package main

import (
	"cmp"
	"net/http"
	"net/netip"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// fakePools are the pools of a fake agent, by name. A pool that lost a prefix has 52 draining blocks.
type fakePools map[string]v1.PoolSpec

// errNoPools is what an agent of another mode answers.
var errNoPools = fault.New(fault.NotFound, "this agent runs --ipam-mode pod-cidr: pools are there in multi-pool, and nodes there and with --store kubernetes")

func (a *fakeAgent) mountPools(r chi.Router) {
	r.Use(func(next http.Handler) http.Handler {
		return httpx.Handler(func(w http.ResponseWriter, r *http.Request) error {
			if a.pools == nil {
				return errNoPools
			}
			next.ServeHTTP(w, r)
			return nil
		})
	})
	a.pools.mount(r)
}

func (p fakePools) mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/pool", httpx.Handler(p.list))
	mountNodes(r)
	r.Method(http.MethodGet, "/v1/pool/{name}", httpx.Handler(p.get))
	r.Method(http.MethodPut, "/v1/pool/{name}", httpx.Handler(p.put))
	r.Method(http.MethodDelete, "/v1/pool/{name}", httpx.Handler(p.delete))
}

func (p fakePools) list(w http.ResponseWriter, _ *http.Request) error {
	list := []v1.PoolSpec{}
	for _, one := range p {
		list = append(list, withUse(one))
	}
	return httpx.JSON(w, http.StatusOK, list)
}

func (p fakePools) pool(r *http.Request) (v1.PoolSpec, error) {
	name := chi.URLParam(r, "name")
	one, ok := p[name]
	if !ok {
		return one, fault.New(fault.NotFound, `pool "`+name+`": no such pool`)
	}
	return one, nil
}

func (p fakePools) get(w http.ResponseWriter, r *http.Request) error {
	one, err := p.pool(r)
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, withUse(one))
}

// withUse is a pool with two nodes that own three blocks of each family.
func withUse(p v1.PoolSpec) v1.PoolSpec {
	for _, prefix := range p.Prefixes {
		family, blockBits := "ipv4", p.IPv4BlockBits
		if prefix.Addr().Is6() {
			family, blockBits = "ipv6", p.IPv6BlockBits
		}
		p.Use = append(p.Use, v1.PoolUse{Family: family, Blocks: 1 << (blockBits - prefix.Bits()), Owned: 3, Nodes: 2})
	}
	return p
}

func (p fakePools) put(w http.ResponseWriter, r *http.Request) error {
	one, err := httpx.Decode[v1.PoolSpec](w, r)
	if err != nil {
		return err
	}
	if len(one.Prefixes) == 0 {
		return fault.New(fault.Invalid, "no prefix: want at least one, such as 10.244.0.0/16")
	}
	one.IPv4BlockBits, one.IPv6BlockBits = cmp.Or(one.IPv4BlockBits, 26), cmp.Or(one.IPv6BlockBits, 122)
	one.Use, one.Draining = nil, nil
	if was := p[one.Name].Prefixes; len(one.Prefixes) < len(was) {
		for i := range 52 {
			cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 4, byte(i), 0}), 26)
			one.Draining = append(one.Draining, v1.PoolBlock{CIDR: cidr, Node: "two", Key: "bbbbbbbbbb"})
		}
	}
	if one.Name == "tiny" {
		one.Warnings = []string{"it has 1 IPv4 block, and the cluster has 2 nodes"}
	}
	p[one.Name] = one
	return httpx.JSON(w, http.StatusOK, one)
}

func (p fakePools) delete(w http.ResponseWriter, r *http.Request) error {
	one, err := p.pool(r)
	if err != nil {
		return err
	}
	delete(p, one.Name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}
