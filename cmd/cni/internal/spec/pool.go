package spec

import (
	"cmp"
	"fmt"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cmd/cni/internal/jsontext"
)

// Where a pod says which pool its addresses come from. containerd and CRI-O hand the annotations of a pod, a map of
// strings, to a plugin that declares the capability.
const (
	annotationsCapability = "io.kubernetes.cri.pod-annotations"
	poolAnnotation        = "porin.dev/pool"
)

// Pool is the name of the pool that addresses are asked from; "" leaves it to the agent's settings. What is nearer to the
// container is right: CNI_ARGS, then the pod's annotation, then the network's configuration.
func (c *Call) Pool() string { return cmp.Or(c.Args.Pool, c.Config.PodPool, c.Config.Pool) }

// readRuntime reads what the runtime adds for the capabilities that the configuration declares.
func (c *Config) readRuntime(value []byte) error {
	if err := c.readIPs(value); err != nil {
		return err
	}
	return jsontext.Fields(value, func(key string, value []byte) error {
		if key != annotationsCapability || jsontext.IsNull(value) {
			return nil
		}
		if err := c.readAnnotations(value); err != nil {
			return fmt.Errorf("%s: %w", annotationsCapability, err)
		}
		return nil
	})
}

func (c *Config) readAnnotations(value []byte) error {
	return jsontext.Fields(value, func(key string, value []byte) (err error) {
		if key != poolAnnotation {
			return nil
		}
		if c.PodPool, err = jsontext.String(value); err != nil {
			err = fmt.Errorf("%s: %w", poolAnnotation, err)
		}
		return err
	})
}

// checkPools looks at the names of pools that are not the runtime's, and at what the configuration says twice.
func (c *Call) checkPools() *Error {
	if name := c.Config.PodPool; name != "" && v1.CheckPoolName(name) != nil {
		return &Error{
			BadConfig, fmt.Sprintf("the pod's annotation %s=%q is malformed", poolAnnotation, clip(name)),
			"correct the annotation: the name of a pool has " + v1.PoolNameRule,
		}
	}
	name := c.Config.Pool
	if name == "" {
		return nil
	}
	if err := v1.CheckPoolName(name); err != nil {
		return badConfig("pool", fmt.Errorf("%q %w: want %s", clip(name), err, v1.PoolNameRule))
	}
	if c.Config.IPAM != "" {
		return badConfig("pool", fmt.Errorf("%q: the addresses come from the IPAM plugin %s, which has no pools of Porin's", name, clip(c.Config.IPAM)))
	}
	return nil
}
