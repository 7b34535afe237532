package multipool_test

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
)

// plain is the allocator of a machine whose pods have names of no interest.
type plain struct {
	*allocator.Allocator
	mu    sync.Mutex // guards the fields below
	pods  map[netip.Addr]allocator.Handle
	count int
}

func newPlain() *plain {
	return &plain{Allocator: allocator.New(nil), pods: map[netip.Addr]allocator.Handle{}}
}

func (p *plain) name() allocator.Handle {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count++
	return allocator.Handle(fmt.Sprintf("pod%d", p.count))
}

func (p *plain) note(addr netip.Addr, pod allocator.Handle) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pods[addr] = pod
}

func of(a endpoint.Addresses, f cluster.Family) netip.Addr {
	if f == cluster.IPv6 {
		return a.IPv6
	}
	return a.IPv4
}

// allocate gives out an address of the family, if the machine has one.
func (p *plain) allocate(f cluster.Family, given func(netip.Addr)) (netip.Addr, bool) {
	pod := p.name()
	got, err := allocator.NewSource(p.Allocator, nil).Allocate(context.Background(), allocator.Request{Owner: pod})
	addr := of(got.Addresses, f)
	if err != nil || !addr.IsValid() {
		return netip.Addr{}, false
	}
	given(addr)
	p.note(addr, pod)
	return addr, true
}

// adopt has a pod have the address that had it before the agent began.
func (p *plain) adopt(addr netip.Addr) {
	pod, has := p.name(), endpoint.Addresses{IPv4: addr}
	if addr.Is6() {
		has = endpoint.Addresses{IPv6: addr}
	}
	if err := p.Adopt(allocator.Allocation{Owner: pod, Pool: allocator.DefaultPool, Addresses: has}); err != nil {
		panic(err)
	}
	p.note(addr, pod)
}

// release calls released before anybody else can have the address.
func (p *plain) release(addr netip.Addr, released func(netip.Addr)) {
	p.mu.Lock()
	pod := p.pods[addr]
	delete(p.pods, addr)
	p.mu.Unlock()
	released(addr)
	p.Release(pod)
}

func (p *plain) all() (list []netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr := range p.pods {
		list = append(list, addr)
	}
	return list
}

// anyOf is the first address of a block that the machine has of the pool.
func (p *plain) anyOf(pool string) netip.Addr {
	for _, b := range p.Pools().Blocks(pool) {
		return b.Prefix.Addr()
	}
	return netip.Addr{}
}

func prefixes(texts ...string) (list []netip.Prefix) {
	for _, text := range texts {
		list = append(list, netip.MustParsePrefix(text))
	}
	return list
}
