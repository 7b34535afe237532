package allocator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

// TestSubnetModel runs random operations and checks each answer against a plain list of who has what and since
// when what is free.
func TestSubnetModel(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { runModel(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

type truth struct {
	owner map[netip.Addr]allocator.Handle
	free  map[netip.Addr]time.Time // since when; the beginning of time when it was never used
}

func runModel(t *testing.T, random *rand.Rand) {
	const quarantine = 30 * time.Second
	a := podCIDR(t, "10.0.0.0/28")
	model := truth{map[netip.Addr]allocator.Handle{}, map[netip.Addr]time.Time{}}
	for last := byte(2); last < 15; last++ {
		model.free[netip.AddrFrom4([4]byte{10, 0, 0, last})] = time.Time{}
	}
	for range 500 {
		owner := allocator.Handle(fmt.Sprintf("c%d:eth0", random.IntN(20)))
		switch random.IntN(5) {
		case 0, 1:
			got, err := a.Allocate(allocator.Request{Owner: owner})
			model.allocated(t, quarantine, owner, got.Addresses.IPv4, err)
		case 2:
			want := netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(16))})
			_, err := a.Allocate(allocator.Request{Owner: owner, Want: endpoint.Addresses{IPv4: want}})
			model.requested(t, quarantine, owner, want, err)
		case 3:
			if got, want := a.Release(owner), model.release(owner); got != want {
				t.Fatalf("release %s = %v, want %v", owner, got, want)
			}
		case 4:
			time.Sleep(time.Duration(random.IntN(10)) * time.Second)
		}
		wantConsistent(t, a)
		if used := a.Usage().Pools[0].Blocks[0].Used; used != int64(len(model.owner)) {
			t.Fatalf("%d used, want %d", used, len(model.owner))
		}
	}
}

func (m truth) has(owner allocator.Handle) (netip.Addr, bool) {
	for addr, other := range m.owner {
		if other == owner {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// oldest is since when the longest free address that is not in quarantine has been free.
func (m truth) oldest(quarantine time.Duration) (oldest time.Time, ok bool) {
	for _, since := range m.free {
		if time.Since(since) >= quarantine && (!ok || since.Before(oldest)) {
			oldest, ok = since, true
		}
	}
	return oldest, ok
}

func (m truth) allocated(t *testing.T, quarantine time.Duration, owner allocator.Handle, got netip.Addr, err error) {
	t.Helper()
	if has, ok := m.has(owner); ok {
		if err != nil || got != has {
			t.Fatalf("allocate %s again = %s, %v, want %s", owner, got, err, has)
		}
		return
	}
	oldest, ok := m.oldest(quarantine)
	if !ok {
		if !errors.Is(err, allocator.ErrExhausted) {
			t.Fatalf("allocate %s = %s, %v, want ErrExhausted", owner, got, err)
		}
		return
	}
	since, isFree := m.free[got]
	if err != nil || !isFree || !since.Equal(oldest) {
		t.Fatalf("allocate %s = %s, %v: free %v since %s, the oldest is free since %s", owner, got, err, isFree, since, oldest)
	}
	m.take(owner, got)
}

func (m truth) requested(t *testing.T, quarantine time.Duration, owner allocator.Handle, want netip.Addr, err error) {
	t.Helper()
	has, hasOne := m.has(owner)
	since, isFree := m.free[want]
	switch {
	case hasOne && has == want:
		if err != nil {
			t.Fatalf("allocate %s %s again: %v", owner, want, err)
		}
	case hasOne || m.owner[want] != "":
		if !errors.Is(err, allocator.ErrInUse) {
			t.Fatalf("allocate %s %s: error %v, want ErrInUse", owner, want, err)
		}
	case !isFree:
		if !errors.Is(err, allocator.ErrOutside) {
			t.Fatalf("allocate %s %s: error %v, want ErrOutside", owner, want, err)
		}
	case time.Since(since) < quarantine:
		if !errors.Is(err, allocator.ErrQuarantined) {
			t.Fatalf("allocate %s %s: error %v, want ErrQuarantined", owner, want, err)
		}
	default:
		if err != nil {
			t.Fatalf("allocate %s %s: %v", owner, want, err)
		}
		m.take(owner, want)
	}
}

func (m truth) take(owner allocator.Handle, addr netip.Addr) {
	delete(m.free, addr)
	m.owner[addr] = owner
}

func (m truth) release(owner allocator.Handle) bool {
	addr, ok := m.has(owner)
	if ok {
		delete(m.owner, addr)
		m.free[addr] = time.Now()
	}
	return ok
}
