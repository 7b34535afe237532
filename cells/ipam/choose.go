package ipam

import (
	"porin.dev/porin/cells/endpointmanager"
)

// PoolSource says which pool an endpoint gets its addresses of when the caller of its ADD names none.
type PoolSource interface {
	// PoolFor returns the name of a pool, or "" to leave it to the next source. It does not block.
	PoolFor(spec endpointmanager.Spec) string
}

// PoolSources are asked in their order; the first that has something to say is right.
type PoolSources []PoolSource

// NewPoolSources returns those of a node: what the settings say of the pod's namespace, and what they say of the node.
func NewPoolSources(cfg Config) PoolSources {
	return PoolSources{namespacePools(cfg.NamespacePools), nodePool(cfg.NodePool)}
}

// PoolFor implements [PoolSource]. When no source has something to say it is [DefaultPool].
func (s PoolSources) PoolFor(spec endpointmanager.Spec) string {
	for _, source := range s {
		if name := source.PoolFor(spec); name != "" {
			return name
		}
	}
	return DefaultPool
}
