package client

import (
	"context"
	"net/http"
	"net/url"

	v1 "porin.dev/porin/api/v1"
)

// Nodes lists the incarnations of the cluster's nodes.
func (c *Client) Nodes(ctx context.Context) ([]v1.Node, error) {
	return call[[]v1.Node](ctx, c, http.MethodGet, "/v1/node", nil)
}

// Peers lists the other nodes as this one knows them.
func (c *Client) Peers(ctx context.Context) ([]v1.Peer, error) {
	return call[[]v1.Peer](ctx, c, http.MethodGet, "/v1/peer", nil)
}

// NodeNames lists the nodes without their blocks, for which the agent would read every block.
func (c *Client) NodeNames(ctx context.Context) ([]v1.Node, error) {
	return call[[]v1.Node](ctx, c, http.MethodGet, "/v1/node?blocks=false", nil)
}

// DeleteNode deletes a node, so that others can claim its blocks. It waits for the quarantine of its pools.
func (c *Client) DeleteNode(ctx context.Context, name string, request v1.NodeDeletion) error {
	return c.send(ctx, http.MethodPost, nodePath(name)+"/delete", request)
}

// ResetNode ends the contest of two machines for one node's key.
func (c *Client) ResetNode(ctx context.Context, name string, request v1.NodeReset) error {
	return c.send(ctx, http.MethodPost, nodePath(name)+"/reset", request)
}

// Recovery shows whether the cluster recovers from a store that was rolled back.
func (c *Client) Recovery(ctx context.Context) (v1.Recovery, error) {
	return call[v1.Recovery](ctx, c, http.MethodGet, "/v1/recovery", nil)
}

// ChangeRecovery begins a recovery, or ends it.
func (c *Client) ChangeRecovery(ctx context.Context, request v1.RecoveryRequest) (v1.Recovery, error) {
	return call[v1.Recovery](ctx, c, http.MethodPost, "/v1/recovery", request)
}

func nodePath(name string) string { return "/v1/node/" + url.PathEscape(name) }
