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

// Pools lists the pools of the cluster by name.
func (c *Client) Pools(ctx context.Context) ([]v1.PoolSpec, error) {
	return call[[]v1.PoolSpec](ctx, c, http.MethodGet, "/v1/pool", nil)
}

// PoolNames lists the pools without how full they are, for which the agent would read every block.
func (c *Client) PoolNames(ctx context.Context) ([]v1.PoolSpec, error) {
	return call[[]v1.PoolSpec](ctx, c, http.MethodGet, "/v1/pool?use=false", nil)
}

// Pool shows one pool.
func (c *Client) Pool(ctx context.Context, name string) (v1.PoolSpec, error) {
	return call[v1.PoolSpec](ctx, c, http.MethodGet, poolPath(name), nil)
}

// PutPool makes the pool, or changes it.
func (c *Client) PutPool(ctx context.Context, pool v1.PoolSpec) (v1.PoolSpec, error) {
	return call[v1.PoolSpec](ctx, c, http.MethodPut, poolPath(pool.Name), pool)
}

// DeletePool deletes a pool that is not in use.
func (c *Client) DeletePool(ctx context.Context, name string) error {
	return c.send(ctx, http.MethodDelete, poolPath(name), nil)
}

func poolPath(name string) string { return "/v1/pool/" + url.PathEscape(name) }
