package client

import (
	"context"
	"net/http"

	v1 "porin.dev/porin/api/v1"
)

// Doctor examines the agent now: where ledger, endpoints, addresses and kernel disagree. An attachment
// (containerID:ifname) restricts it to what is about that, and then no repair follows; "" is all.
func (c *Client) Doctor(ctx context.Context, attachment string) (v1.Doctor, error) {
	return call[v1.Doctor](ctx, c, http.MethodGet, withQuery("/v1/doctor", "endpoint", attachment), nil)
}

// DoctorAbout is [Client.Doctor] for what is about a subject, such as "addresses", with the notes on it.
func (c *Client) DoctorAbout(ctx context.Context, about string) (v1.Doctor, error) {
	return call[v1.Doctor](ctx, c, http.MethodGet, withQuery("/v1/doctor", "about", about), nil)
}

// Repair examines twice, a second apart, and repairs what both have found; of one subject only, unless about is "".
func (c *Client) Repair(ctx context.Context, about string) (v1.Doctor, error) {
	return call[v1.Doctor](ctx, c, http.MethodPost, withQuery("/v1/doctor", "about", about), nil)
}
