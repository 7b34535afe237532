package kubernetes

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam"
)

// poolAnnotation of a namespace names the pool of its pods' addresses.
const poolAnnotation = "porin.dev/pool"

// namespacePools knows the pools that namespaces of the API name.
type namespacePools struct{ *Pods }

var _ ipam.PoolSource = namespacePools{}

// PoolFor implements [ipam.PoolSource]. While the API server is away and the namespace is not known, it is the pool of
// the pod's earlier attachment.
func (p namespacePools) PoolFor(spec endpoint.Spec) (pool, otherwise string) {
	otherwise = fmt.Sprintf("correct the annotation %s of namespace %s", poolAnnotation, spec.Pod.Namespace)
	if namespace, ok := p.namespace(spec.Pod.Namespace); ok {
		return namespace.Annotations[poolAnnotation], otherwise
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.attached[types.UID(spec.Pod.UID)].pool, otherwise
}
