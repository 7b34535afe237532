package client

import (
	"context"
	"net/http"
	"net/url"

	v1 "porin.dev/porin/api/v1"
)

// Controllers lists the loops of the agent by name.
func (c *Client) Controllers(ctx context.Context) ([]v1.Controller, error) {
	return call[[]v1.Controller](ctx, c, http.MethodGet, "/v1/controller", nil)
}

// Health returns which other nodes this one reaches.
func (c *Client) Health(ctx context.Context) (v1.ClusterHealth, error) {
	return call[v1.ClusterHealth](ctx, c, http.MethodGet, "/v1/health", nil)
}

// RunController has a loop do its next round now. It does not wait for the round.
func (c *Client) RunController(ctx context.Context, name string) error {
	response, err := c.do(ctx, http.MethodPost, "/v1/controller/"+url.PathEscape(name)+"/run", nil)
	if err != nil {
		return err
	}
	return response.Body.Close()
}
