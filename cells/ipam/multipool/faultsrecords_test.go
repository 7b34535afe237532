package multipool_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/cluster/embedded/embeddedtest"
)

// TestPoolRecordInvalid puts a pool that no agent writes beside the others: no agent uses it.
func TestPoolRecordInvalid(t *testing.T) {
	for name, values := range map[string]string{
		"no size":         `"prefixes":["10.8.0.0/24"]`,
		"IPv4 size":       `"prefixes":["10.8.0.0/24"],"exclude":["10.8.0.1/32"],"ipv4BlockBits":40,"ipv6BlockBits":122`,
		"IPv6 size":       `"prefixes":["fd00::/64"],"exclude":["fd00::1/128"],"ipv4BlockBits":26,"ipv6BlockBits":200`,
		"empty prefix":    `"prefixes":[""],"ipv4BlockBits":26,"ipv6BlockBits":122`,
		"pending":         `"pending":[""],"ipv4BlockBits":26,"ipv6BlockBits":122`,
		"empty exclusion": `"prefixes":["10.8.0.0/24"],"exclude":[""],"ipv4BlockBits":26,"ipv6BlockBits":122`,
	} {
		t.Run(name, func(t *testing.T) {
			s := embeddedtest.Open(t, t.TempDir())
			w := newWorld(t, s.Backend())
			w.pool("default", 28, "10.0.0.0/24")
			embeddedtest.Write(t, s, "pools/evil", `{"version":1,"name":"evil","uid":"x","state":"accepted",`+values+`}`)
			if p, err := w.backend.Pools.Get(t.Context(), "evil"); !errors.Is(err, cluster.ErrUnreadable) {
				t.Fatalf("it is read as %+v, error %v", p, err)
			}
			one := w.machine("one", 1)
			w.mustAllocate(one)
			if err := one.controller.Refill(t.Context(), "evil"); err == nil {
				t.Errorf("it gave %+v", w.blocks())
			}
		})
	}
}

func TestDefaultPoolInterrupted(t *testing.T) {
	w := newWorld(t, strict(t))
	w.cfg.DefaultPool = []string{"10.0.0.0/24"}
	w.breakable("Pools.Update").failNext(1)
	one := w.machine("one", 1)
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		if _, err := w.allocate(one, 100*time.Millisecond); err == nil {
			return
		}
	}
	p, err := w.backend.Pools.Get(t.Context(), "default")
	t.Errorf("one call failed when the default pool was made, and it stays %q: %+v, %v", p.State, p, err)
}

// TestDamagedRecord puts one record that cannot be read beside the others.
func TestDamagedRecord(t *testing.T) {
	for _, key := range []string{"nodes/other.aaaaaaaaaa", "pools/other", "blocks/10-9-0-0-28", "sessions/other.aaaaaaaaaa/session"} {
		for _, recovery := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s recovery=%v", key, recovery), func(t *testing.T) {
				s := embeddedtest.Open(t, t.TempDir())
				w := newWorld(t, s.Backend())
				w.pool("default", 28, "10.0.0.0/24")
				zero := w.machine("zero", 7)
				w.mustAllocate(zero)
				if recovery {
					w.beginRecovery()
					w.endRecovery() // long ago
				}
				embeddedtest.Write(t, s, key, `{"version":2,"of":"a later agent"}`)
				one := w.machine("one", 1)
				var err error
				for end := time.Now().Add(2 * time.Second); time.Now().Before(end); {
					if _, err = w.allocate(one, 100*time.Millisecond); err == nil {
						return
					}
				}
				t.Errorf("no address: %v", err)
			})
		}
	}
}

// TestDamagedPool damages a pool that an agent has a block of; it wants one of another pool.
func TestDamagedPool(t *testing.T) {
	s := embeddedtest.Open(t, t.TempDir())
	w := newWorld(t, s.Backend())
	w.cfg.PreAllocate = 0
	w.pool("default", 28, "10.0.0.0/24")
	w.pool("other", 28, "10.1.0.0/24")
	one := w.machine("one", 1)
	w.wait("it has a block of the other pool", func() bool { return one.controller.Refill(t.Context(), "other") == nil })
	one.addresses.adopt(one.addresses.anyOf("other")) // a pod
	w.stop(one)
	embeddedtest.Write(t, s, "pools/other", `{"version":2,"of":"a later agent"}`)
	w.start(one)
	var err error
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		if err = one.controller.Refill(t.Context(), "default"); err == nil {
			return
		}
	}
	t.Errorf("no address of the default pool: %v", err)
}

// TestDamagedOwnBlock damages the record of one block of a node.
func TestDamagedOwnBlock(t *testing.T) {
	s := embeddedtest.Open(t, t.TempDir())
	w := newWorld(t, s.Backend())
	w.pool("default", 28, "10.0.0.0/24")
	one := w.machine("one", 1)
	w.mustAllocate(one)
	key := "blocks/" + cluster.BlockName(w.blocks()[0].CIDR)
	w.stop(one)
	embeddedtest.Write(t, s, key, `{}`)
	w.start(one)
	var err error
	for range 16 { // more than the block has
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			if _, err = w.allocate(one, 100*time.Millisecond); err == nil {
				break
			}
		}
	}
	if err != nil {
		t.Errorf("no address of another block: %v", err)
	}
}

// TestDamagedForeignBlock has a pool that is nearly full and one block of another pool that cannot be read.
func TestDamagedForeignBlock(t *testing.T) {
	s := embeddedtest.Open(t, t.TempDir())
	w := newWorld(t, s.Backend())
	w.cfg.PreAllocate = 0
	w.pool("default", 32, "10.0.0.0/26") // 64 blocks
	one, two := w.machine("one", 1), w.machine("two", 2)
	for range 60 {
		w.mustAllocate(one)
	}
	embeddedtest.Write(t, s, "blocks/10-9-0-0-28", `{}`)
	var err error
	bad := 0
	for range 4 {
		if _, err = w.allocate(two, time.Second); err != nil {
			bad++
			t.Log(err)
		}
	}
	if bad > 0 {
		t.Errorf("%d of 4 free blocks are not found", bad)
	}
}
