package main

import (
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/go-chi/chi/v5"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/httpx"
)

// reserve gives 10.1.0.100 unless another address is asked for.
func (a *fakeAgent) reserve(w http.ResponseWriter, r *http.Request) error {
	body, err := httpx.Decode[v1.ReservationRequest](w, r)
	if err != nil {
		return err
	}
	got := v1.Reservation{Owner: body.Owner, Pool: "default", Addresses: body.Addresses, Token: "T0K3N", Permanent: body.Permanent}
	if !body.Permanent {
		got.Expires = noon.Add(body.Expires)
	}
	if body.Pool != "" {
		got.Pool = body.Pool
	}
	if !got.Addresses.IPv4.IsValid() {
		got.Addresses.IPv4 = netip.MustParseAddr("10.1.0.100")
	}
	if slices.ContainsFunc(a.reserved, func(one v1.Reservation) bool { return one.Owner == got.Owner }) {
		return fault.New(fault.Conflict, "address in use: it has reserved "+got.Addresses.IPv4.String())
	}
	a.reserved = append(a.reserved, got)
	return httpx.JSON(w, http.StatusOK, got)
}

func (a *fakeAgent) release(w http.ResponseWriter, r *http.Request) error {
	text, token := chi.URLParam(r, "ip"), r.URL.Query().Get("token")
	i := slices.IndexFunc(a.reserved, func(one v1.Reservation) bool { return one.Addresses.IPv4.String() == text })
	switch {
	case i < 0:
		return fault.New(fault.NotFound, "release "+text+": address of nobody")
	case token != "" && token != a.reserved[i].Token:
		return fault.New(fault.Conflict, "release "+text+": no such reservation, or it is over")
	}
	was := a.reserved[i]
	was.Token = ""
	a.reserved = slices.Delete(a.reserved, i, i+1)
	return httpx.JSON(w, http.StatusOK, was)
}

func (a *fakeAgent) reservations() (all []v1.Allocation) {
	for _, one := range a.reserved {
		all = append(all, v1.Allocation{
			Address: one.Addresses.IPv4, Pool: one.Pool, Owner: one.Owner, Since: noon.Add(-time.Minute), Expires: one.Expires, Permanent: one.Permanent,
		})
	}
	return all
}
