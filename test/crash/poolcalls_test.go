package crash

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	v1 "porin.dev/porin/api/v1"
)

func (p *pools) put(pool v1.PoolSpec) error {
	if err := p.agent.Do(http.MethodPut, "/v1/pool/"+pool.Name, pool, nil); err != nil {
		return fmt.Errorf("put pool %s: %w", pool.Name, err)
	}
	return nil
}

// empty makes the pool, of which the node owns nothing and is not asked for anything. The blocks of a disabled pool are
// given back at once.
func (p *pools) empty(pool v1.PoolSpec) error {
	disabled := pool
	disabled.Disabled = true
	return errors.Join(p.put(disabled), p.within(func() error {
		return p.agent.Do(http.MethodDelete, "/v1/pool/"+pool.Name, nil, nil)
	}), p.put(pool))
}

// awaitNone waits until the node owns nothing of the pool.
func (p *pools) awaitNone(pool string) error {
	return p.within(func() error {
		owned, err := p.owned()
		for text := range owned {
			var of string
			if _, _ = fmt.Sscan(text, &of); of == pool {
				return fmt.Errorf("the node owns %v", keys(owned))
			}
		}
		return err
	})
}

// awaitRested waits until no address rests: a block with a resting address is not empty.
func (p *pools) awaitRested() error {
	return p.within(func() error {
		var answer v1.IPAM
		err := p.agent.Get("/v1/ipam", &answer)
		for _, pool := range answer.Pools {
			for _, r := range pool.Ranges {
				if r.Quarantined > 0 {
					return fmt.Errorf("of %s %d rest", r.Prefix, r.Quarantined)
				}
			}
		}
		return err
	})
}

// areOnly checks which pools there are.
func (p *pools) areOnly(names ...string) error {
	var list []v1.PoolSpec
	if err := p.agent.Get("/v1/pool", &list); err != nil {
		return err
	}
	var got []string
	for _, one := range list {
		got = append(got, one.Name)
	}
	if !slices.Equal(got, names) {
		return fmt.Errorf("the pools are %v, want %v", got, names)
	}
	return nil
}
