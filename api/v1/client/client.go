// Package client calls the agent's API from Go.
//
//	c := client.New(v1.DefaultSocket)
//	endpoints, err := c.Endpoints(ctx, "")
//
// A failure that the agent reports is a [*v1.Problem] in the error's chain; a call without an answer is
// [ErrUnreachable]. The deadline of a call's context travels with it; by then the agent has undone its work.
package client

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// Client calls one agent. It may be used concurrently, and keeps connections until Close.
type Client struct {
	socket string
	http   http.Client
}

// NewInProcess makes a client of routes of the API in this process.
func NewInProcess(routes http.Handler) *Client {
	return &Client{http: http.Client{Transport: inProcess{routes}}}
}

// New makes a client of the agent that listens on the Unix socket. It does not connect yet.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}
	return &Client{socket: socket, http: http.Client{Transport: &http.Transport{
		DialContext:        dial,
		DisableCompression: true,
		IdleConnTimeout:    time.Minute,
	}}}
}

// Close lets go of the connections that are not in use. The client may be used again.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks how the agent is.
func (c *Client) Status(ctx context.Context) (v1.Status, error) {
	return call[v1.Status](ctx, c, http.MethodGet, "/v1/status", nil)
}

// Endpoints lists the endpoints of a CNI network by ascending ID; of all networks when network is "".
func (c *Client) Endpoints(ctx context.Context, network string) ([]v1.Endpoint, error) {
	return call[[]v1.Endpoint](ctx, c, http.MethodGet, withQuery("/v1/endpoint", "network", network), nil)
}

// Endpoint finds one endpoint by a reference: a number, "container-id:C", "cni-attachment-id:C:IFNAME",
// "pod-name:NAMESPACE/NAME", "ipv4:A" or "ipv6:A".
func (c *Client) Endpoint(ctx context.Context, ref string) (v1.Endpoint, error) {
	return call[v1.Endpoint](ctx, c, http.MethodGet, endpointPath(ref), nil)
}

// CreateEndpoint creates the endpoint of an attachment and returns when it is in the datapath. The same request again
// returns the endpoint that is there. netns is the container's network namespace, which stays the caller's to close.
func (c *Client) CreateEndpoint(ctx context.Context, containerID, ifname string, netns *os.File, request v1.EndpointRequest) (v1.Endpoint, error) {
	return call[v1.Endpoint](ctx, c.withDescriptor(netns), http.MethodPut, endpointPath(containerID+":"+ifname), request)
}

// UpdateEndpoint changes what policies know of an endpoint's pod, by a reference as for [Client.Endpoint].
func (c *Client) UpdateEndpoint(ctx context.Context, ref string, patch v1.EndpointPatch) (v1.Endpoint, error) {
	return call[v1.Endpoint](ctx, c, http.MethodPatch, endpointPath(ref), patch)
}

// DeleteEndpoint deletes one endpoint by a reference, as for [Client.Endpoint]. An unknown attachment is a
// success with none deleted; any other reference is a problem then.
func (c *Client) DeleteEndpoint(ctx context.Context, ref string) (v1.DeleteResult, error) {
	return call[v1.DeleteResult](ctx, c, http.MethodDelete, endpointPath(ref), nil)
}

// ForceDeleteEndpoint is [Client.DeleteEndpoint] that ends the endpoint even if a part of it cannot be undone: the
// result lists these parts.
func (c *Client) ForceDeleteEndpoint(ctx context.Context, ref string) (v1.DeleteResult, error) {
	return call[v1.DeleteResult](ctx, c, http.MethodDelete, endpointPath(ref)+"?force=true", nil)
}

// DeleteContainer deletes every endpoint of a container. An unknown one is a success with none deleted.
func (c *Client) DeleteContainer(ctx context.Context, request v1.DeleteRequest) (v1.DeleteResult, error) {
	return call[v1.DeleteResult](ctx, c, http.MethodDelete, "/v1/endpoint", request)
}

// CollectGarbage deletes the attachments of a network that are not valid. A result that is withheld is no error.
func (c *Client) CollectGarbage(ctx context.Context, request v1.GCRequest) (v1.GCResult, error) {
	return call[v1.GCResult](ctx, c, http.MethodPost, "/v1/gc", request)
}

// AcceptRestore removes what the agent's start holds. One that is named and not held is a problem.
func (c *Client) AcceptRestore(ctx context.Context, request v1.AcceptRequest) (v1.DeleteResult, error) {
	return call[v1.DeleteResult](ctx, c, http.MethodPost, "/v1/restore/accept", request)
}

// Traces lists the latest operations, newest first. A reference (a container ID or its beginning, NAMESPACE/NAME, or as
// for [Client.Endpoint]) restricts it to one endpoint, which may be gone; "" is all.
func (c *Client) Traces(ctx context.Context, ref string) ([]v1.Trace, error) {
	return call[[]v1.Trace](ctx, c, http.MethodGet, withQuery("/v1/trace", "ref", ref), nil)
}

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
	return c.send(ctx, http.MethodPost, "/v1/controller/"+url.PathEscape(name)+"/run", nil)
}

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

// withQuery adds a parameter that has a value.
func withQuery(path, name, value string) string {
	if value == "" {
		return path
	}
	return path + "?" + name + "=" + url.QueryEscape(value)
}

func endpointPath(ref string) string { return "/v1/endpoint/" + url.PathEscape(ref) }
