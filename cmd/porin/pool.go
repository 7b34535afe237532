package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "porin.dev/porin/api/v1"
)

func poolList(ctx context.Context, s *session, _ []string) error {
	list, err := s.client.Pools(ctx)
	if err != nil {
		return err
	}
	return s.print(list, func(w io.Writer) {
		row(w, "POOL", "PREFIXES", "BLOCKS", "NODES", "QUARANTINE", "STATE")
		for _, p := range list {
			row(w, p.Name, prefixText(p.Prefixes), blockText(p), present(selectorText(p.NodeSelector)), p.Quarantine, poolState(p))
		}
	})
}

func poolGet(ctx context.Context, s *session, args []string) error {
	p, err := s.client.Pool(ctx, args[0])
	if err != nil {
		return err
	}
	return s.print(p, func(w io.Writer) { poolTable(w, p) })
}

func poolTable(w io.Writer, p v1.PoolSpec) {
	row(w, "Pool:", p.Name+", "+poolState(p))
	row(w, "Prefixes:", prefixText(p.Prefixes))
	row(w, "Blocks:", blockText(p))
	if len(p.NodeSelector) > 0 {
		row(w, "Nodes:", selectorText(p.NodeSelector))
	}
	row(w, "Quarantine:", p.Quarantine)
	if p.ReuseResting {
		row(w, "When full:", "the address that rests longest is given out")
	}
}

// poolCreate refuses a pool that is there: its owner would not expect it to change.
func poolCreate(ctx context.Context, s *session, args []string) error {
	if _, err := s.client.Pool(ctx, args[0]); err == nil {
		return fmt.Errorf("pool %s is there already: porin pool set changes it", args[0])
	} else if p, ok := errors.AsType[*v1.Problem](err); !ok || p.Code != v1.CodeNotFound {
		return err
	}
	return s.putPool(ctx, v1.PoolSpec{Name: args[0]})
}

func poolSet(ctx context.Context, s *session, args []string) error {
	p, err := s.client.Pool(ctx, args[0])
	if err != nil {
		return err
	}
	return s.putPool(ctx, p)
}

// putPool writes the pool with what the flags say.
func (s *session) putPool(ctx context.Context, p v1.PoolSpec) error {
	if err := s.pool.onto(&p); err != nil {
		return usageOf([]string{"pool"}, err.Error())
	}
	p, err := s.client.PutPool(ctx, p)
	if err != nil {
		return err
	}
	return s.print(p, func(w io.Writer) { poolTable(w, p) })
}

func poolDelete(ctx context.Context, s *session, args []string) error {
	return s.client.DeletePool(ctx, args[0])
}

// onto sets what was given.
func (f poolOptions) onto(p *v1.PoolSpec) error {
	if f.set.Changed("prefix") {
		p.Prefixes = nil
		for _, text := range f.prefixes {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				return fmt.Errorf("--prefix %q: want a prefix, such as 10.244.0.0/16", text)
			}
			p.Prefixes = append(p.Prefixes, prefix)
		}
	}
	for name, to := range map[string]struct {
		from int
		to   *int
	}{"ipv4-block": {f.ipv4Block, &p.IPv4BlockBits}, "ipv6-block": {f.ipv6Block, &p.IPv6BlockBits}} {
		if f.set.Changed(name) {
			*to.to = to.from
		}
	}
	if f.set.Changed("node-label") {
		p.NodeSelector = map[string]string{}
		for _, label := range f.labels {
			key, value, ok := strings.Cut(label, "=")
			if !ok {
				return fmt.Errorf("--node-label %q: want LABEL=VALUE", label)
			}
			p.NodeSelector[key] = value
		}
	}
	if f.set.Changed("disabled") {
		p.Disabled = f.disabled
	}
	if f.set.Changed("quarantine") {
		p.Quarantine = f.quarantine
	}
	if f.set.Changed("reuse-resting") {
		p.ReuseResting = f.reuseResting
	}
	return nil
}

func prefixText(prefixes []netip.Prefix) string {
	var texts []string
	for _, p := range prefixes {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, " ")
}

func blockText(p v1.PoolSpec) string {
	return fmt.Sprintf("/%d, /%d", p.IPv4BlockBits, p.IPv6BlockBits)
}

func selectorText(labels map[string]string) string {
	var texts []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		texts = append(texts, key+"="+labels[key])
	}
	return strings.Join(texts, " ")
}

func poolState(p v1.PoolSpec) string {
	if p.Disabled {
		return "disabled"
	}
	return "enabled"
}

// poolNames are for completion.
func poolNames(ctx context.Context, s *session) (all []candidate) {
	list, _ := s.client.Pools(ctx)
	for _, p := range list {
		all = append(all, candidate{p.Name, prefixText(p.Prefixes)})
	}
	return all
}
