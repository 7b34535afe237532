package main

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/boottime"
)

// startingNodes begin at the same moment, as after a power failure, and each has a pod that wants an address at once.
const startingNodes = 200

// measureStart measures until each pod has it, and its node a block: an IPv4 one, and then, for a pool of both, one of
// each family. The nodes and their etcd share the processors of this machine.
func measureStart(ctx context.Context) (figures, error) {
	f := figures{}
	for family, pool := range map[string]cluster.Pool{"ipv4": onlyIPv4(defaultPool), "dual-stack": defaultPool} {
		err := withEtcd(ctx, pool, func(s *inEtcd) error { return startTogether(ctx, s, f, family) })
		if err != nil {
			return nil, err
		}
	}
	return f, nil
}

func onlyIPv4(p cluster.Pool) cluster.Pool {
	p.Prefixes = slices.DeleteFunc(slices.Clone(p.Prefixes), func(prefix netip.Prefix) bool { return prefix.Addr().Is6() })
	return p
}

func startTogether(ctx context.Context, s *inEtcd, f figures, family string) (err error) {
	nodes := make([]*node, startingNodes)
	for i := range nodes {
		own, err := openStore(ctx, s.dir) // nodes share no connection
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, own.Stop(ctx)) }()
		n, err := newNode(own, i, boottime.Now)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, n.stop(ctx)) }()
		nodes[i] = n
	}
	var all errgroup.Group
	took := make([]time.Duration, startingNodes)
	began := time.Now()
	for i, n := range nodes {
		all.Go(func() error {
			if err := n.multi.Start(); err != nil {
				return err
			}
			err := n.fill(ctx, 0, 1)
			for err != nil && time.Since(began) < time.Minute { // as a runtime does
				err = n.fill(ctx, 0, 1)
			}
			took[i] = time.Since(began)
			return err
		})
	}
	err = all.Wait()
	slices.Sort(took)
	calls := int64(0)
	for _, n := range nodes {
		calls += n.store.calls()
	}
	f[family+"-median-seconds"], f[family+"-last-seconds"] = took[startingNodes/2].Seconds(), took[startingNodes-1].Seconds()
	f[family+"-calls"] = float64(calls) / startingNodes
	return err
}
