package client

import (
	"context"
	"net/http"
	"net/netip"
	"net/url"

	v1 "porin.dev/porin/api/v1"
)

// IPAM shows the pools and the addresses in use.
func (c *Client) IPAM(ctx context.Context) (v1.IPAM, error) {
	return call[v1.IPAM](ctx, c, http.MethodGet, "/v1/ipam", nil)
}

// Reserve keeps addresses for a user that is no endpoint. It is not to be repeated: an owner that has something already
// is a problem, and a lost call's addresses come back by themselves, unless they are permanent.
func (c *Client) Reserve(ctx context.Context, request v1.ReservationRequest) (v1.Reservation, error) {
	return call[v1.Reservation](ctx, c, http.MethodPost, "/v1/ipam", request)
}

// Release ends the reservation of an address, and returns it. With a token it ends that reservation and no later
// one; "" is whatever is there.
func (c *Client) Release(ctx context.Context, addr netip.Addr, token string) (v1.Reservation, error) {
	return call[v1.Reservation](ctx, c, http.MethodDelete, withQuery("/v1/ipam/"+url.PathEscape(addr.String()), "token", token), nil)
}
