package ipam

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/endpoint/endpointtest"
	"porin.dev/porin/cells/ipam/allocator"
)

// api is the routes of a node with addresses of both families.
type api struct {
	*testing.T
	*allocator.Allocator
	router    chi.Router
	endpoints *endpointtest.Endpoints
}

func newAPI(t *testing.T) api {
	t.Helper()
	cfg := DefaultConfig()
	cfg.PodCIDRs = []string{"10.0.0.0/29", "fd00::/64"}
	n, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	a := api{t, n, chi.NewRouter(), endpointtest.NewEndpoints()}
	newRoutes(cfg, allocator.NewSource(n, nil), a.endpoints).Mount(a.router)
	return a
}

// call wants a status, and returns the reservation or the problem.
func (a api) call(method, path, body string, status int) (r v1.Reservation, p v1.Problem) {
	a.Helper()
	w := httptest.NewRecorder()
	a.router.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	if w.Code != status {
		a.Fatalf("%s %s %s: status %d, want %d: %s", method, path, body, w.Code, status, w.Body)
	}
	var into any = &r
	if status >= http.StatusBadRequest {
		into = &p
	}
	if err := json.Unmarshal(w.Body.Bytes(), into); err != nil {
		a.Fatal(err)
	}
	return r, p
}

func TestAReservationOverHTTP(t *testing.T) {
	a := newAPI(t)
	got, _ := a.call("POST", "/v1/ipam", `{"owner":"move","addresses":{"ipv4":"10.0.0.5"},"expires":60000000000}`, 200)
	want := v1.Addresses{IPv4: netip.MustParseAddr("10.0.0.5"), IPv6: netip.MustParseAddr("fd00::2")}
	if left := time.Until(got.Expires); got.Owner != "move" || got.Pool != allocator.DefaultPool || got.Addresses != want || left < 50*time.Second || left > time.Minute {
		t.Errorf("got %+v", got)
	}
	shown := a.List()[0]
	if shown.Owner != "move" || !shown.Expires.Equal(got.Expires) {
		t.Errorf("it is shown as %+v", shown)
	}
	if _, p := a.call("POST", "/v1/ipam", `{"owner":"move"}`, 409); !strings.Contains(p.Detail, "it has reserved [10.0.0.5 fd00::2] until") {
		t.Errorf("problem %+v", p)
	}
	a.call("DELETE", "/v1/ipam/fd00::2?token=another", "", 409)
	back, _ := a.call("DELETE", "/v1/ipam/fd00::2?token="+got.Token, "", 200)
	if back.Owner != "move" || back.Addresses != want || back.Token != "" {
		t.Errorf("ended %+v", back)
	}
	a.call("DELETE", "/v1/ipam/fd00::2", "", 404)
}

func TestReservePermanentOverHTTP(t *testing.T) {
	a := newAPI(t)
	got, _ := a.call("POST", "/v1/ipam", `{"owner":"printer","permanent":true}`, 200)
	if !got.Permanent || !got.Expires.IsZero() {
		t.Errorf("got %+v", got)
	}
	w := httptest.NewRecorder()
	a.router.ServeHTTP(w, httptest.NewRequest("GET", "/v1/ipam", nil))
	if n := strings.Count(w.Body.String(), `"permanent":true`); n != 2 {
		t.Errorf("%d addresses are shown as permanent, want both: %s", n, w.Body)
	}
	if was, _ := a.call("DELETE", "/v1/ipam/10.0.0.2", "", 200); !was.Permanent {
		t.Errorf("ended %+v", was)
	}
}

func TestReleaseAddressInUse(t *testing.T) {
	a := newAPI(t)
	owner := allocator.NewHandle("porin", endpoint.Attachment{ContainerID: "c1", IfName: "eth0"})
	if _, err := allocator.NewSource(a.Allocator, nil).Allocate(t.Context(), allocator.Request{Owner: owner}); err != nil {
		t.Fatal(err)
	}
	_, p := a.call("DELETE", "/v1/ipam/10.0.0.2", "", 409)
	if p.Code != v1.CodeConflict || !strings.Contains(p.Detail, "address in use by endpoint c1:eth0") {
		t.Errorf("problem %+v", p)
	}
}

// TestReleaseReservationInUse: a permanent reservation stays while an endpoint uses it, or is being made with its
// token.
func TestReleaseReservationInUse(t *testing.T) {
	a := newAPI(t)
	got, _ := a.call("POST", "/v1/ipam", `{"owner":"db","permanent":true}`, 200)
	making := endpoint.Endpoint{ID: 1, Spec: endpoint.Spec{Attachment: endpoint.Attachment{ContainerID: "c1", IfName: "eth0"}, Reservation: got.Token}}
	found := endpoint.Endpoint{ID: 1, Spec: endpoint.Spec{Attachment: making.Spec.Attachment}, Addresses: endpoint.Addresses(got.Addresses)}
	for _, ep := range []endpoint.Endpoint{making, found} {
		a.endpoints.Put(ep)
		for _, query := range []string{"", "?token=" + got.Token} {
			if _, p := a.call("DELETE", "/v1/ipam/10.0.0.2"+query, "", 409); !strings.Contains(p.Detail, "address in use by endpoint c1:eth0") {
				t.Errorf("problem %+v", p)
			}
		}
	}
	a.endpoints.Delete(1)
	if was, _ := a.call("DELETE", "/v1/ipam/10.0.0.2?token="+got.Token, "", 200); !was.Permanent || was.Token != "" {
		t.Errorf("ended %+v", was)
	}
}

func TestWhatIsNoReservationIsAProblem(t *testing.T) {
	a := newAPI(t)
	for _, row := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/ipam", `{}`, 400},
		{"POST", "/v1/ipam", `{"owner":"x","colour":"red"}`, 400},
		{"POST", "/v1/ipam", `{"owner":"x","pool":"Blue!"}`, 400},
		{"POST", "/v1/ipam", `{"owner":"x","pool":"blue"}`, 400},
		{"POST", "/v1/ipam", `{"owner":"x","addresses":{"ipv4":"fd00::7"}}`, 400},
		{"POST", "/v1/ipam", `{"owner":"x","addresses":{"ipv6":"10.0.0.3"}}`, 400},
		{"POST", "/v1/ipam", `{"owner":"x","addresses":{"ipv6":"fd00::7%eth0"}}`, 400},
		{"POST", "/v1/ipam", `{"owner":"x","addresses":{"ipv4":"10.9.9.9"}}`, 400},
		{"POST", "/v1/ipam", `{"owner":"x","expires":3600000000001}`, 400},
		{"POST", "/v1/ipam", `{"owner":"x","expires":9223372036854775807}`, 400},
		{"POST", "/v1/ipam", `{"owner":"x","expires":1,"permanent":true}`, 400},
		{"DELETE", "/v1/ipam/web", ``, 400},
		{"DELETE", "/v1/ipam/10.9.9.9", ``, 404},
	} {
		a.call(row.method, row.path, row.body, row.status)
	}
	if got := a.List(); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

// TestACallerThatHasLeftReservesNothing, as its token is lost.
func TestACallerThatHasLeftReservesNothing(t *testing.T) {
	a := newAPI(t)
	a.router.ServeHTTP(gone{httptest.NewRecorder()}, httptest.NewRequest("POST", "/v1/ipam", strings.NewReader(`{"owner":"x"}`)))
	if got := a.List(); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

type gone struct{ *httptest.ResponseRecorder }

func (gone) Write([]byte) (int, error) { return 0, http.ErrHandlerTimeout }
