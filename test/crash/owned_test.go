package crash

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/embedded"
	"porin.dev/porin/internal/testutil"
)

// pools are the pools of a node: the blocks that its agent gives out from, and the store's, read without the agent.
type pools struct {
	agent   *testutil.Agent
	records *cluster.Backend // nil for those in the agent's own store
}

// maxBlocks is how many blocks of a family a few pods of a pool may own: one in use, and one about to be given back,
// however often which process was killed.
const maxBlocks = 2

// agree checks that the agent gives out from what is the node's, all of it and no more, and that this does not grow.
func (p *pools) agree() error {
	return p.within(func() error {
		owned, err := p.owned()
		if err != nil {
			return err
		}
		given, err := p.given()
		if err != nil {
			return err
		}
		if !maps.Equal(owned, given) {
			return fmt.Errorf("the store has as the node's %v, and its agent gives out from %v", keys(owned), keys(given))
		}
		return bounded(owned)
	})
}

func bounded(owned map[string]bool) error {
	count := map[string]int{}
	for text := range owned {
		var pool, family string
		_, _ = fmt.Sscan(text, &pool, &family)
		if count[pool+" "+family]++; count[pool+" "+family] > maxBlocks {
			return fmt.Errorf("the node owns more than it needs: %v", keys(owned))
		}
	}
	return nil
}

func keys(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

func name(pool string, of fmt.Stringer, is4 bool) string {
	family := "ipv6"
	if is4 {
		family = "ipv4"
	}
	return fmt.Sprint(pool, " ", family, " ", of)
}

// given is what the agent gives out from.
func (p *pools) given() (map[string]bool, error) {
	var answer v1.IPAM
	if err := p.agent.Get("/v1/ipam", &answer); err != nil {
		return nil, err
	}
	set := map[string]bool{}
	for _, pool := range answer.Pools {
		for _, r := range pool.Ranges {
			set[name(pool.Name, r.Prefix, r.Prefix.Addr().Is4())] = true
		}
	}
	return set, nil
}

// owned is what the records say.
func (p *pools) owned() (map[string]bool, error) {
	var owned []cluster.Block
	var err error
	if p.records != nil {
		owned, err = blocksOf(*p.records, p.agent.Node.Name)
	} else {
		owned, err = p.blocksInFile()
	}
	set := map[string]bool{}
	for _, b := range owned {
		set[name(b.Pool, b.CIDR, b.CIDR.Addr().Is4())] = true
	}
	return set, err
}

// blocksInFile are those in a copy of the store's file. A copy that was taken during a write may be torn: then it is an
// error.
func (p *pools) blocksInFile() ([]cluster.Block, error) {
	dir, err := os.MkdirTemp(p.agent.Node.Dir, "copy")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file, err := os.ReadFile(filepath.Join(p.agent.Node.Dir, "store", "store.db"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "store.db"), file, 0o600)
	}
	if err != nil {
		return nil, err
	}
	return blocksIn(dir, p.agent.Node.Name)
}

func blocksIn(dir, node string) (list []cluster.Block, err error) {
	s, ctx := embedded.New(dir, slog.New(slog.DiscardHandler)), context.Background()
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Stop(ctx)) }()
	return blocksOf(s.Backend(), node)
}

func blocksOf(records cluster.Backend, node string) (list []cluster.Block, err error) {
	for b, err := range records.Blocks.All(context.Background(), cluster.BlockFilter{}) {
		if err != nil {
			return nil, err
		}
		if b.Owner.Name == node {
			list = append(list, b)
		}
	}
	return list, nil
}

// within repeats what a round of the agent may be changing.
func (p *pools) within(look func() error) error {
	for deadline := time.Now().Add(settle); ; time.Sleep(10 * time.Millisecond) {
		if err := look(); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}
