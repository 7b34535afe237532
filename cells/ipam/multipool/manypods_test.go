package multipool_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/cells/ipam/multipool"
	"porin.dev/porin/internal/boottime"
)

// TestManyPodsAtOnce has more pods start together than one block has addresses: all get one, though each block is a
// single address.
func TestManyPodsAtOnce(t *testing.T) {
	each(t, func(t *testing.T, b cluster.Backend) {
		w := newWorld(t, b)
		w.pool("default", 32, "10.0.0.0/26")
		cfg := w.cfg
		cfg.Node, cfg.Dir, cfg.PreAllocate = "one", t.TempDir(), 0
		a := allocator.New(nil)
		c, err := multipool.New(cfg, b, nil, a, boottime.Now, w.log)
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Stop(context.Background()) })
		w.wait("the node is connected", func() bool { return c.Status().Connected })
		source := allocator.NewSource(a, c)
		var pods sync.WaitGroup
		for i := range 30 {
			pods.Go(func() {
				if _, err := source.Allocate(t.Context(), allocator.Request{Owner: allocator.Handle(fmt.Sprintf("pod-%d:eth0", i))}); err != nil {
					t.Errorf("pod %d: %v", i, err)
				}
			})
		}
		pods.Wait()
	})
}
