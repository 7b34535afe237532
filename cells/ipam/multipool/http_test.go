package multipool_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"testing"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/admin"
	"porin.dev/porin/cells/cluster/adminapi"
	"porin.dev/porin/cells/ipam/multipool"
)

// noAgent is enough for callers that ask for the cluster's pools and nodes alone.
type noAgent struct{ adminapi.Agent }

func (noAgent) RecoveryRequested() bool { return false }

// call makes a call of the API and returns its answer.
func call[T any](t *testing.T, b cluster.Backend, method, path string, body any) (answer T) {
	t.Helper()
	return callOf[T](t, b, nil, http.StatusOK, method, path, body)
}

// callOf is call of an agent that answers with the status.
func callOf[T any](t *testing.T, b cluster.Backend, c *multipool.Controller, status int, method, path string, body any) (answer T) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r := chi.NewRouter()
	var agent adminapi.Agent = noAgent{}
	if c != nil {
		agent = c
	}
	adminapi.NewRoutes(b, agent, admin.NewPools(b), admin.NewNodes(b)).Mount(r)
	adminapi.NewNodeRoutes(b, admin.NewNodes(b)).Mount(r)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, httptest.NewRequest(method, path, bytes.NewReader(text)))
	if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil || w.Code != status {
		t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	return answer
}

// TestPoolWarnings makes pools with fewer blocks than there are nodes.
func TestPoolWarnings(t *testing.T) {
	b := strict(t)
	for _, name := range []string{"one", "two", "three", "three", "three"} { // two machines of three were replaced
		if _, err := b.Nodes.Create(t.Context(), cluster.Node{ID: cluster.NodeID{Name: name, Key: cluster.NewKey()}, State: cluster.NodeActive}); err != nil {
			t.Fatal(err)
		}
	}
	const both = "it has 2 IPv4 blocks, and the cluster has 3 nodes: not every node can have one; add prefixes, or create a pool with smaller blocks"
	const single = "it has 1 IPv6 block, and the cluster has 3 nodes: not every node can have one; add prefixes, or create a pool with smaller blocks"
	for _, c := range []struct {
		pool v1.PoolSpec
		want []string
	}{
		{v1.PoolSpec{Name: "enough", Prefixes: prefixes("10.0.0.0/24", "fd00::/64")}, nil},
		{v1.PoolSpec{Name: "few", Prefixes: prefixes("10.0.1.0/25", "fd00:1::/64")}, []string{both}},
		{v1.PoolSpec{Name: "single", Prefixes: prefixes("fd00:2::/122")}, []string{single}},
		{v1.PoolSpec{Name: "three", Prefixes: prefixes("10.0.5.0/24"), Exclude: prefixes("10.0.5.0/26")}, nil},
		{v1.PoolSpec{Name: "excluded", Prefixes: prefixes("10.0.2.0/24"), Exclude: prefixes("10.0.2.0/25")}, []string{both}},
		{v1.PoolSpec{Name: "selected", Prefixes: prefixes("10.0.3.0/25"), NodeSelector: map[string]string{"zone": "a"}}, nil},
		{v1.PoolSpec{Name: "disabled", Prefixes: prefixes("10.0.4.0/25"), Disabled: true}, nil},
	} {
		if got := call[v1.PoolSpec](t, b, http.MethodPut, "/v1/pool/"+c.pool.Name, c.pool).Warnings; !slices.Equal(got, c.want) {
			t.Errorf("pool %s is made with warnings %q, want %q", c.pool.Name, got, c.want)
		}
		list := call[[]v1.PoolSpec](t, b, http.MethodGet, "/v1/pool", nil)
		if i := slices.IndexFunc(list, func(p v1.PoolSpec) bool { return p.Name == c.pool.Name }); !slices.Equal(list[i].Warnings, c.want) {
			t.Errorf("pool %s is listed with warnings %q, want %q", c.pool.Name, list[i].Warnings, c.want)
		}
	}
}

// TestPoolOverHTTP writes what a pool has, and reads it again. Only what is left out gets its default.
func TestPoolOverHTTP(t *testing.T) {
	b := strict(t)
	want := v1.PoolSpec{
		Name: "blue", Prefixes: prefixes("10.0.0.0/24"), Exclude: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28")}, AllowedNamespaces: []string{"shop"},
		Quarantine: new(cluster.DefaultQuarantine * 0),
	}
	call[v1.PoolSpec](t, b, http.MethodPut, "/v1/pool/blue", want)
	got := call[v1.PoolSpec](t, b, http.MethodGet, "/v1/pool/blue", nil)
	if !slices.Equal(got.Exclude, want.Exclude) || !slices.Equal(got.AllowedNamespaces, want.AllowedNamespaces) || got.Quarantine == nil || *got.Quarantine != 0 {
		t.Errorf("pool %+v, want %+v", got, want)
	}
	got.Quarantine, got.Exclude, got.AllowedNamespaces = nil, nil, nil
	got = call[v1.PoolSpec](t, b, http.MethodPut, "/v1/pool/blue", got)
	if len(got.Exclude)+len(got.AllowedNamespaces) > 0 || *got.Quarantine != cluster.DefaultQuarantine {
		t.Errorf("pool %+v", got)
	}
}

// TestListNamesOnly asks for what completion asks for.
func TestListNamesOnly(t *testing.T) {
	b := strict(t)
	for _, name := range []string{"two", "one"} {
		if _, err := b.Nodes.Create(t.Context(), cluster.Node{ID: cluster.NodeID{Name: name, Key: cluster.NewKey()}, State: cluster.NodeActive}); err != nil {
			t.Fatal(err)
		}
	}
	b.Blocks = nil // reading one ends the test
	call[[]v1.PoolSpec](t, b, http.MethodGet, "/v1/pool?use=false", nil)
	if list := call[[]v1.Node](t, b, http.MethodGet, "/v1/node?blocks=false", nil); len(list) != 2 || list[0].Name != "one" || list[0].State != "active" {
		t.Errorf("nodes %+v", list)
	}
}

// TestRecoveryRequest asks for a recovery while the store is away, and again when it answers.
func TestRecoveryRequest(t *testing.T) {
	w := newWorld(t, strict(t))
	one := w.machine("one", 1)
	w.wait("it is connected", func() bool { return one.controller.Status().Connected })
	one.network.Cut()
	request := v1.RecoveryRequest{Begin: true}
	if got := callOf[v1.Recovery](t, w.backend, one.controller, http.StatusAccepted, http.MethodPost, "/v1/recovery", request); !got.Requested {
		t.Errorf("without the store: %+v", got)
	}
	if got := callOf[v1.Recovery](t, one.network.Backend(), one.controller, http.StatusOK, http.MethodGet, "/v1/recovery", nil); !got.Requested || got.UnderWay || got.Unwritten == nil {
		t.Errorf("asked without the store: %+v, want the request", got)
	}
	if got := reported(one).Recovery; got == nil || !got.Requested || got.UnderWay {
		t.Errorf("the status without the store has %+v, want the request", got)
	}
	one.network.Heal()
	w.wait("the recovery has begun", w.recovering)
	if got := callOf[v1.Recovery](t, w.backend, one.controller, http.StatusOK, http.MethodPost, "/v1/recovery", request); got.Requested || !got.UnderWay {
		t.Errorf("with the store: %+v", got)
	}
	if got := reported(one).Recovery; got != nil && got.Requested {
		t.Errorf("the status with the store has %+v, want no request", got)
	}
	w.wait("it has written its blocks", func() bool { return len(w.unwritten()) == 0 })
	if got := callOf[v1.Recovery](t, w.backend, one.controller, http.StatusOK, http.MethodPost, "/v1/recovery", v1.RecoveryRequest{End: true}); got.UnderWay {
		t.Errorf("after the end: %+v", got)
	}
	one.network.Cut()
	if problem := callOf[v1.Problem](t, one.network.Backend(), one.controller, http.StatusServiceUnavailable, http.MethodGet, "/v1/recovery", nil); problem.Code != "unavailable" {
		t.Errorf("asked without the store and without a request: %+v", problem)
	}
}
