package ipam

import (
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam/allocator"
)

func TestPoolsAreShownOverHTTPAndAsMetrics(t *testing.T) {
	cfg := DefaultConfig()
	cfg.PodCIDRs = []string{"10.0.0.0/29"}
	a, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	router := chi.NewRouter()
	newRoutes(cfg, allocator.NewSource(a, nil), endpointmanager.NewTable()).Mount(router)
	get := func() string {
		recorder := httptest.NewRecorder()
		router.ServeHTTP(recorder, httptest.NewRequest("GET", "/v1/ipam", nil))
		return recorder.Body.String()
	}
	empty := `{"mode":"pod-cidr","pools":[{"name":"default","ranges":[{"prefix":"10.0.0.0/29","capacity":5,"used":0,"quarantined":0,"free":5}]}],"allocations":[]}`
	if got := get(); got != empty {
		t.Errorf("got  %s\nwant %s", got, empty)
	}
	for _, owner := range []allocator.Handle{"porin.c1.eth0", "porin.c2.eth0"} {
		if _, err := allocator.NewSource(a, nil).Allocate(t.Context(), allocator.Request{Owner: owner, PodHandle: allocator.PodHandle("shop", "web.2%")}); err != nil {
			t.Fatal(err)
		}
	}
	a.Release("porin.c1.eth0")
	if got := get(); !strings.Contains(got, `"allocations":[{"address":"10.0.0.3","pool":"default","owner":"c2:eth0","containerID":"c2","ifname":"eth0",`+
		`"pod":{"namespace":"shop","name":"web.2%"},"since":"`) || !strings.Contains(got, `Z"}]`) {
		t.Errorf("got %s", got)
	}
	held := endpoint.Endpoint{Spec: endpoint.Spec{Attachment: endpoint.Unnamed("link/48")}, Addresses: endpoint.Addresses{IPv4: netip.MustParseAddr("192.0.2.7")}}
	if err := NewStep(allocator.NewSource(a, nil)).Occupy(held); err != nil {
		t.Fatal(err)
	}
	if got, want := get(), `{"address":"192.0.2.7","pool":"","owner":"link/48","unnamed":true,`; !strings.Contains(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	want := `
# HELP porin_ipam_addresses Addresses of this node by pool, prefix and use.
# TYPE porin_ipam_addresses gauge
porin_ipam_addresses{pool="default",prefix="10.0.0.0/29",use="free"} 3
porin_ipam_addresses{pool="default",prefix="10.0.0.0/29",use="quarantined"} 1
porin_ipam_addresses{pool="default",prefix="10.0.0.0/29",use="used"} 1
# HELP porin_ipam_conntrack_failures_total How often the tracked connections of released addresses could not be deleted.
# TYPE porin_ipam_conntrack_failures_total counter
porin_ipam_conntrack_failures_total 0
`
	if err := testutil.CollectAndCompare(newCollector(a, new(CleanFailures)), strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
