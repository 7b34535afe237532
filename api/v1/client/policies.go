package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	v1 "porin.dev/porin/api/v1"
)

// Policies lists the network policies in the order of their evaluation.
func (c *Client) Policies(ctx context.Context) ([]v1.Policy, error) {
	return call[[]v1.Policy](ctx, c, http.MethodGet, "/v1/policy", nil)
}

// Policy shows one policy, with its manifest. Only a NetworkPolicy and a CiliumNetworkPolicy have a namespace.
func (c *Client) Policy(ctx context.Context, kind, namespace, name string) (v1.Policy, error) {
	return call[v1.Policy](ctx, c, http.MethodGet, policyPath(kind, namespace, name), nil)
}

// PutPolicies sets the policies of Kubernetes manifests, YAML or JSON: all or none. It returns what became of each.
func (c *Client) PutPolicies(ctx context.Context, documents []byte) ([]v1.Policy, error) {
	return call[[]v1.Policy](ctx, c, http.MethodPut, "/v1/policy", manifests(documents))
}

// CheckPolicies returns what [Client.PutPolicies] would. It changes nothing.
func (c *Client) CheckPolicies(ctx context.Context, documents []byte) ([]v1.Policy, error) {
	return call[[]v1.Policy](ctx, c, http.MethodPut, "/v1/policy?dryRun=true", manifests(documents))
}

// DeletePolicy ends a policy.
func (c *Client) DeletePolicy(ctx context.Context, kind, namespace, name string) error {
	return c.send(ctx, http.MethodDelete, policyPath(kind, namespace, name), nil)
}

// ExplainPolicy says what the policies decide about a connection. from and to are addresses, or references as for
// [Client.Endpoint]; protocol "" is TCP, and port 0 none.
func (c *Client) ExplainPolicy(ctx context.Context, from, to, protocol string, port uint16) (v1.PolicyExplanation, error) {
	query := url.Values{"from": {from}, "to": {to}}
	if protocol != "" {
		query.Set("protocol", protocol)
	}
	if port != 0 {
		query.Set("port", strconv.Itoa(int(port)))
	}
	return call[v1.PolicyExplanation](ctx, c, http.MethodGet, "/v1/policy/explain?"+query.Encode(), nil)
}

// DiffPolicies says which of the connections that were seen lately would be decided otherwise with the policies of
// Kubernetes manifests, and without those to delete: each is KIND/NAMESPACE/NAME, or KIND/NAME. It changes nothing.
func (c *Client) DiffPolicies(ctx context.Context, documents []byte, remove []string) (v1.PolicyDiff, error) {
	path := "/v1/policy/diff"
	if len(remove) > 0 {
		path += "?" + url.Values{"delete": remove}.Encode()
	}
	return call[v1.PolicyDiff](ctx, c, http.MethodPost, path, manifests(documents))
}

func policyPath(kind, namespace, name string) string {
	path := "/v1/policy/" + url.PathEscape(kind)
	if namespace != "" {
		path += "/" + url.PathEscape(namespace)
	}
	return path + "/" + url.PathEscape(name)
}
