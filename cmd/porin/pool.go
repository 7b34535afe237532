package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	v1 "porin.dev/porin/api/v1"
)

func poolList(ctx context.Context, s *session, _ []string) error {
	list, err := s.client.Pools(ctx)
	if err != nil {
		return err
	}
	s.warn(list...)
	return s.print(list, func(w io.Writer) {
		row(w, "POOL", "PREFIXES", "EXCLUDED", "BLOCKS", "IPV4 OWNED", "IPV6 OWNED", "DRAINING", "NODES", "NAMESPACES", "QUARANTINE", "STATE")
		for _, p := range list {
			draining := "" // how many blocks nodes still have of what was taken out of the pool
			if len(p.Draining) > 0 {
				draining = fmt.Sprint(len(p.Draining))
			}
			row(w, p.Name, joined(p.Prefixes), joined(p.Exclude), blockText(p), ownedText(p, "ipv4"), ownedText(p, "ipv6"), draining,
				labelsText(p.NodeSelector), strings.Join(p.AllowedNamespaces, " "), quarantineText(p), poolState(p))
		}
	})
}

func poolGet(ctx context.Context, s *session, args []string) error {
	p, err := s.client.Pool(ctx, args[0])
	return s.show(p, err, func(w io.Writer) { poolTable(w, p) })
}

// poolCreate refuses a pool that is there: its owner would not expect it to change.
func poolCreate(ctx context.Context, s *session, args []string) error {
	if _, err := s.client.Pool(ctx, args[0]); err == nil {
		return fmt.Errorf("pool %s is there already: porin pool set changes it", args[0])
	} else if p, ok := errors.AsType[*v1.Problem](err); !ok || p.Code != v1.CodeNotFound {
		return err
	}
	return s.putPool(ctx, "create", v1.PoolSpec{Name: args[0]})
}

// poolSet refuses to change nothing, and what cannot change: whoever asks for it would think that it is done.
func poolSet(ctx context.Context, s *session, args []string) error {
	if !s.pool.anyGiven() {
		return usageOf([]string{"pool", "set"}, "want what to change")
	}
	p, err := s.client.Pool(ctx, args[0])
	if err != nil {
		return err
	}
	if f := s.pool; f.set.Changed("ipv4-block") && f.ipv4Block != p.IPv4BlockBits || f.set.Changed("ipv6-block") && f.ipv6Block != p.IPv6BlockBits {
		return usageOf([]string{"pool", "set"}, fmt.Sprintf("the blocks of pool %s stay as they are, %s", p.Name, blockText(p)))
	}
	return s.putPool(ctx, "set", p)
}

// putPool writes the pool with what the flags say.
func (s *session) putPool(ctx context.Context, verb string, p v1.PoolSpec) error {
	if err := s.pool.applyTo(&p); err != nil {
		return usageOf([]string{"pool", verb}, err.Error())
	}
	p.Use, p.Draining, p.Warnings = nil, nil, nil // they are of answers, and may be long
	p, err := s.client.PutPool(ctx, p)
	if err != nil {
		return err
	}
	s.warn(p)
	return s.print(p, func(w io.Writer) { poolTable(w, p) })
}

// warn writes what may not be meant of pools. In JSON the answer has it.
func (s *session) warn(pools ...v1.PoolSpec) {
	for _, p := range pools {
		for _, warning := range p.Warnings {
			if s.output.value != "json" {
				_, _ = fmt.Fprintf(s.err, "porin: warning: pool %s: %s\n", p.Name, printable(warning))
			}
		}
	}
}

func poolDelete(ctx context.Context, s *session, args []string) error {
	return s.done(s.client.DeletePool(ctx, args[0]), "pool %s deleted", args[0])
}

// poolNames are for completion.
func poolNames(ctx context.Context, s *session) (all []cobra.Completion) {
	list, _ := s.client.PoolNames(ctx)
	for _, p := range list {
		all = append(all, cobra.CompletionWithDesc(p.Name, joined(p.Prefixes)))
	}
	return all
}
