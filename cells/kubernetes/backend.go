package kubernetes

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/kubernetes/records"
)

// NewAgentBackend is [NewBackend] for an agent, whose role is the one in deploy/chart.
func NewAgentBackend(client *Client, log *slog.Logger) (cluster.Backend, error) {
	b, err := NewBackend(client, log)
	b.AgentRights = true
	return b, err
}

// NewBackend returns the records of the cluster that the API server keeps, for --store kubernetes.
func NewBackend(client *Client, log *slog.Logger) (cluster.Backend, error) {
	core, err := client.Core()
	if err != nil {
		return cluster.Backend{}, fmt.Errorf("kubernetes: %w", err)
	}
	group, err := client.Group(records.Version)
	if err != nil {
		return cluster.Backend{}, fmt.Errorf("kubernetes: %w", err)
	}
	return records.New(group, (&clusterID{core: core}).get, log), nil
}

// clusterID is the UID of the namespace kube-system, which a cluster has from its beginning to its end.
type clusterID struct {
	core rest.Interface

	mu  sync.Mutex // guards the field below, and is held while the API server is asked
	uid string
}

// get asks the API server until it has an answer.
func (c *clusterID) get(ctx context.Context) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uid != "" {
		return c.uid, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var namespace metav1.PartialObjectMetadata
	request := c.core.Get().Resource("namespaces").Name(metav1.NamespaceSystem).MaxRetries(0).SetHeader("Accept", metadataAlone)
	if err := request.Do(ctx).Into(&namespace); err != nil {
		return "", fmt.Errorf("read the namespace %s: %w", metav1.NamespaceSystem, err)
	}
	c.uid = string(namespace.UID)
	return c.uid, nil
}
