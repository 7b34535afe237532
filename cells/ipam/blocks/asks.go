package blocks

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"porin.dev/porin/internal/fault"
)

// ask is what somebody waits for.
type ask struct {
	pool  string
	want  []netip.Addr // these very addresses; none is any
	look  bool         // instead of all that: a look at everything
	tried bool         // a round has, and had no answer; the manager's lock guards it
	done  chan error   // has room for the one answer
}

// patience bounds how long somebody waits for a block: other nodes need some time to give one up.
const patience = 3 * time.Second

// More returns when this node has something of a pool to give out, or these very addresses; an error says why it has not.
func (m *Manager) More(ctx context.Context, pool string, want ...netip.Addr) error {
	return m.ask(ctx, &ask{pool: pool, want: want})
}

// Recheck reads anew who owns what and has this node give out accordingly, now and not when it is time.
func (m *Manager) Recheck(ctx context.Context) error {
	return m.ask(ctx, &ask{look: true})
}

// Held returns what this node believed to own at the end of the last round. It does not block.
func (m *Manager) Held() []Part {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.held)
}

func (m *Manager) publish() {
	held := []Part{} // not nil: that is before the first round
	for _, h := range m.own.holdings() {
		held = append(held, Part{h.pool, h.block, h.part, h.node})
	}
	m.meters.owns(held)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = held
}

func (m *Manager) ask(ctx context.Context, a *ask) error {
	a.done = make(chan error, 1)
	m.mu.Lock()
	m.asks = append(m.asks, a)
	m.mu.Unlock()
	m.Kick()
	end := time.NewTimer(patience)
	defer end.Stop()
	select {
	case err := <-a.done:
		return err
	case <-end.C:
		if tried := m.leave(a); !tried {
			return fault.New(fault.Unavailable, fmt.Sprintf("the cluster's store did not answer in %s", patience))
		}
		return fault.New(fault.Unavailable, fmt.Sprintf("the cluster had none to give in %s", patience))
	case <-ctx.Done():
		m.leave(a)
		return ctx.Err()
	}
}

// leave ends the waiting, and tells whether a round has tried.
func (m *Manager) leave(a *ask) (tried bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asks = slices.DeleteFunc(m.asks, func(other *ask) bool { return other == a })
	return a.tried
}

// takeAsks returns what is waited for as a round begins: who asks later may have come too late for it.
func (m *Manager) takeAsks() []*ask {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.asks)
}

// answer tells those whose question serve has an answer to. The others wait on.
func (m *Manager) answer(asks []*ask, serve func(*ask) (bool, error)) {
	for _, a := range asks {
		done, err := serve(a)
		if done {
			m.leave(a)
			a.done <- err
			continue
		}
		m.mu.Lock()
		a.tried = true
		m.mu.Unlock()
	}
}

// serve is the answer to what somebody asks after a round.
func (m *Manager) serve(ctx context.Context, a *ask) (done bool, err error) {
	if a.look {
		return true, m.lookNow(ctx)
	}
	pool, known := m.notices.pools[a.pool]
	if !known || pool.refuses(m.cfg.Labels) != nil {
		if err := m.again(ctx, a.pool); err != nil {
			return true, err
		}
		if pool, known = m.notices.pools[a.pool]; !known {
			return true, nil // the allocator says which there are
		}
	}
	if err := pool.refuses(m.cfg.Labels); err != nil {
		return true, err
	}
	for _, addr := range a.want {
		if err := m.claimAddress(ctx, pool, addr); err != nil {
			return true, err
		}
	}
	if m.lacks(pool, a.want) {
		err := m.settled()
		return err != nil, err
	}
	return true, nil
}

// again holds of a pool what is needed by what the store says of it now: the watch may be late.
func (m *Manager) again(ctx context.Context, pool string) error {
	if err := m.readPools(ctx); err != nil {
		return err
	}
	m.configure()
	return m.hold(ctx, pool)
}

// lacks tells whether nothing is free of a family of a pool, but for those of which very addresses are wanted.
func (m *Manager) lacks(pool Pool, want []netip.Addr) bool {
	return slices.ContainsFunc([]family{ipv4, ipv6}, func(f family) bool {
		free, _ := m.usage(pool.Name, f)
		wanted := slices.ContainsFunc(want, func(addr netip.Addr) bool { return family(addr.Is6()) == f })
		return free == 0 && !wanted && pool.count(f) > 0
	})
}

// refuses says why a node of these labels gets nothing of the pool, or nil.
func (p Pool) refuses(labels map[string]string) error {
	switch {
	case p.Disabled:
		return fault.New(fault.Invalid, fmt.Sprintf("pool %s is disabled", p.Name))
	case !p.fits(labels):
		return fault.New(fault.Invalid, fmt.Sprintf("pool %s is not for this node: it is for nodes with %s", p.Name, selector(p.NodeSelector)))
	}
	return nil
}

// selector shows labels as people write them.
func selector(labels map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		parts = append(parts, key+"="+labels[key])
	}
	return strings.Join(parts, ",")
}
