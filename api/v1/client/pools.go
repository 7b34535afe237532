package client

import (
	"context"
	"net/http"
	"net/url"

	v1 "porin.dev/porin/api/v1"
)

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
	response, err := c.do(ctx, http.MethodDelete, poolPath(name), nil)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func poolPath(name string) string { return "/v1/pool/" + url.PathEscape(name) }
