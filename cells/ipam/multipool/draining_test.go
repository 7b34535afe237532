package multipool_test

import (
	"net/http"
	"net/netip"
	"slices"
	"testing"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/ipam/multipool"
)

func examine(t *testing.T, checker *multipool.Checker) []doctor.Finding {
	t.Helper()
	found, err := checker.Examine(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestCheckDrainingBlock takes the prefix in use out of a pool, and has another block excluded.
func TestCheckDrainingBlock(t *testing.T) {
	for name, change := range map[string]func(p *cluster.Pool, used netip.Prefix){
		"prefix":  func(p *cluster.Pool, _ netip.Prefix) { p.Prefixes = prefixes("10.0.1.0/24") },
		"exclude": func(p *cluster.Pool, used netip.Prefix) { p.Exclude = []netip.Prefix{used} },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, strict(t))
			w.cfg.PreAllocate = 0
			p := w.pool("default", 28, "10.0.0.0/24")
			one := w.machine("one", 1)
			w.mustAllocate(one)
			used := w.blocks()[0]
			change(&p, used.CIDR)
			p, err := admin.NewPools(w.backend).Put(t.Context(), p)
			if err != nil {
				t.Fatal(err)
			}
			checker := multipool.NewChecker(w.backend, one.controller)
			if found := examine(t, checker); len(found) > 0 {
				t.Errorf("found %+v, want nothing", found)
			}
			shown := call[v1.PoolSpec](t, w.backend, http.MethodGet, "/v1/pool/default", nil)
			if block := (v1.PoolBlock{CIDR: used.CIDR, Node: "one", Key: used.Owner.Key}); !slices.Equal(shown.Draining, []v1.PoolBlock{block}) {
				t.Errorf("pool %+v, want %+v to be draining", shown, block)
			}

			// The pool of that name is another one.
			w.stop(one)
			if err := w.backend.Pools.Delete(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			w.wait("it is gone", func() bool {
				_, err := w.backend.Pools.Get(t.Context(), "default")
				return err != nil
			})
			for _, uid := range []string{"", "another"} {
				if p.UID = uid; uid != "" {
					if _, err := w.backend.Pools.Create(t.Context(), p); err != nil {
						t.Fatal(err)
					}
				}
				if found := examine(t, checker); len(found) != 1 || found[0].Kind != "block-without-pool" {
					t.Errorf("pool with UID %q: found %+v, want block-without-pool", uid, found)
				}
			}
		})
	}
}
