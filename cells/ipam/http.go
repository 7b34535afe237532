package ipam

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// routes are the calls on /v1/ipam.
type routes struct {
	allocator Allocator
	reserver  Reserver
}

func newRoutes(a Allocator, r Reserver) routes { return routes{a, r} }

// Mount implements server.Routes.
func (s routes) Mount(r chi.Router) {
	r.Method(http.MethodGet, "/v1/ipam", httpx.Handler(s.show))
	r.Method(http.MethodPost, "/v1/ipam", httpx.Handler(s.reserve))
	r.Method(http.MethodDelete, "/v1/ipam/{ip}", httpx.Handler(s.release))
}

func (s routes) show(w http.ResponseWriter, _ *http.Request) error {
	return httpx.JSON(w, http.StatusOK, s.allocator.Usage())
}

func (s routes) reserve(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.ReservationRequest](w, r)
	if err != nil {
		return err
	}
	req := Request{Owner: Handle(body.Owner), Pool: body.Pool, Want: endpointmanager.Addresses(body.Addresses)}
	if err := checkRequest(req); err != nil {
		return err
	}
	got, err := s.reserver.Reserve(r.Context(), req, body.Expires)
	if err != nil {
		return err
	}
	if err := httpx.Send(w, http.StatusOK, reservationToV1(got)); err != nil {
		_, _ = s.reserver.Return(got.anyAddress(), got.Token) // the caller has left, and knows no token
	}
	return nil
}

// checkRequest refuses what no pool can have. Whether a pool has the rest is the allocator's to say.
func checkRequest(req Request) error {
	if req.Pool != "" {
		if err := v1.CheckPoolName(req.Pool); err != nil {
			return fault.New(fault.Invalid, fmt.Sprintf("pool %.64q %s: want %s", req.Pool, err, v1.PoolNameRule))
		}
	}
	for f := range families {
		if addr := f.of(req.Want); addr.IsValid() && (addr.Is4() != (f == ipv4) || addr.Zone() != "") {
			return fault.New(fault.Invalid, fmt.Sprintf("address %s: not an address of %s", addr, f))
		}
	}
	return nil
}

// release takes the token from the query.
func (s routes) release(w http.ResponseWriter, r *http.Request) error {
	text, err := httpx.Param(r, "ip")
	if err != nil {
		return err
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return fault.New(fault.Invalid, fmt.Sprintf("address %.64q: want an IP address", text))
	}
	was, err := s.reserver.Return(addr, r.URL.Query().Get("token"))
	if err != nil {
		return err
	}
	return httpx.JSON(w, http.StatusOK, reservationToV1(was))
}

func reservationToV1(r Reservation) v1.Reservation {
	return v1.Reservation{
		Owner: string(r.Owner), Pool: r.Pool, Addresses: v1.Addresses(r.Addresses), Token: r.Token, Expires: r.Expires.UTC(),
	}
}

func (r Reservation) anyAddress() netip.Addr {
	if r.Addresses.IPv4.IsValid() {
		return r.Addresses.IPv4
	}
	return r.Addresses.IPv6
}
