package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/internal/boottime"
)

// node is what an agent has of addresses, without the agent.
type node struct {
	*allocator.Allocator
	source *allocator.Source
	store  *counted
	dir    string
	multi  *multipool.Controller
}

// newNode returns the one of a number, as long a name as cloud providers give, and blocks in the store. It does not run
// yet.
func newNode(b cluster.Backend, number int, clock func() time.Duration) (*node, error) {
	cfg := ipam.DefaultConfig()
	cfg.Mode = ipam.ModeMultiPool
	a, err := ipam.New(cfg, nil)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		return nil, err
	}
	n := &node{Allocator: a, store: &counted{}, dir: dir}
	own := multipool.DefaultConfig()
	own.Node, own.Dir = nodeName(number), dir
	n.multi, err = multipool.New(own, n.store.backend(b), nil, a, clock, slog.New(slog.DiscardHandler))
	n.source = allocator.NewSource(a, n.multi)
	return n, err
}

func nodeName(number int) string {
	return fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", number>>8, number&255)
}

// startNode is newNode for a running node, in real time.
func startNode(b cluster.Backend, number int) (*node, error) {
	n, err := newNode(b, number, boottime.Now)
	if err != nil {
		return nil, err
	}
	return n, n.multi.Start()
}

func (n *node) stop(ctx context.Context) error {
	return errors.Join(n.multi.Stop(ctx), os.RemoveAll(n.dir))
}

// fill has pods of these numbers come.
func (n *node) fill(ctx context.Context, from, to int) error {
	for i := from; i < to; i++ {
		if _, err := n.source.Allocate(ctx, allocator.Request{Owner: handle(i)}); err != nil {
			return err
		}
	}
	return nil
}
