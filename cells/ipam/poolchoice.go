package ipam

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/fx"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

// PoolSource says which pool an endpoint gets its addresses of when the caller of its ADD names none.
type PoolSource interface {
	// PoolFor returns the name of a pool, or "" to leave it to the next source, and what to do to have another one chosen,
	// for errors. It does not block.
	PoolFor(spec endpoint.Spec) (pool, otherwise string)
}

// PoolSources are asked in their order; the first that has something to say is right.
type PoolSources []PoolSource

// NamespacePools contributes a [PoolSource] that newSource builds, which is asked for the pods' namespaces before the
// network and the agent's settings are.
func NamespacePools(newSource any) fx.Option {
	return fx.Provide(fx.Annotate(newSource, fx.As(new(PoolSource)), fx.ResultTags(`group:"ipam.namespacepools"`)))
}

// NewPoolSources returns a node's: the sources for namespaces, the pod's network, and the agent's settings for the
// namespace and for the node.
func NewPoolSources(cfg Config, namespaces ...PoolSource) PoolSources {
	ofNetwork := func(spec endpoint.Spec) (pool, otherwise string) {
		return spec.NetworkPool, "correct the pool of the network configuration"
	}
	ofNamespace := func(spec endpoint.Spec) (pool, otherwise string) {
		namespace := spec.Pod.Namespace
		return cfg.NamespacePools[namespace], fmt.Sprintf("correct --ipam-namespace-pool of the agent, which has it for namespace %.64q", namespace)
	}
	ofNode := func(endpoint.Spec) (pool, otherwise string) {
		return cfg.NodePool, "correct --ipam-node-pool of the agent"
	}
	return append(slices.Clone(namespaces), configured(ofNetwork), configured(ofNamespace), configured(ofNode))
}

// configured is a [PoolSource] of settings.
type configured func(spec endpoint.Spec) (pool, otherwise string)

// PoolFor implements [PoolSource].
func (c configured) PoolFor(spec endpoint.Spec) (pool, otherwise string) { return c(spec) }

// PoolFor implements [PoolSource]. When no source has something to say it is [allocator.DefaultPool].
func (s PoolSources) PoolFor(spec endpoint.Spec) (pool, otherwise string) {
	for _, source := range s {
		if pool, otherwise = source.PoolFor(spec); pool != "" {
			return pool, otherwise
		}
	}
	return allocator.DefaultPool, "name another one with --ipam-node-pool of the agent"
}

// checkChoice reports every fault of the settings that choose a pool. Whether there is such a pool they cannot know.
func (c Config) checkChoice() error {
	var errs []error
	if c.Mode != ModeMultiPool && (c.NodePool != "" || len(c.NamespacePools) > 0) {
		errs = append(errs, fmt.Errorf("ipam-node-pool, ipam-namespace-pool: of no effect in mode %s, which has no pools to choose from", c.Mode))
	}
	if c.NodePool != "" {
		errs = append(errs, checkPool("ipam-node-pool", c.NodePool))
	}
	for _, namespace := range slices.Sorted(maps.Keys(c.NamespacePools)) {
		if namespace == "" {
			errs = append(errs, errors.New("ipam-namespace-pool: want namespace=pool, and the namespace is missing"))
		}
		errs = append(errs, checkPool("ipam-namespace-pool "+namespace, c.NamespacePools[namespace]))
	}
	return errors.Join(errs...)
}

func checkPool(setting, name string) error {
	if err := v1.CheckPoolName(name); err != nil {
		return fmt.Errorf("%s: pool %q %w: want %s", setting, name, err, v1.PoolNameRule)
	}
	return nil
}
