package control

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/cells/proxy/quota"
)

const (
	// maxAcknowledgedOfEndpoint and maxAcknowledged limit the addresses that are remembered. An answer with other
	// addresses waits for an agent.
	maxAcknowledgedOfEndpoint = 1024
	maxAcknowledged           = 16384
)

// acknowledged are the addresses of names that an agent has put into the policy. Its methods may be called
// concurrently.
type acknowledged struct {
	ttl names.Config // only MinTTL and MaxTTL are used

	mu    sync.Mutex // guards the fields below
	quota quota.Quota
	until map[lookupKey]map[netip.Addr]time.Time // the agent keeps them until then
}

// lookupKey is a name that an endpoint has asked for.
type lookupKey struct {
	endpoint uint16
	name     string
}

func newAcknowledged() *acknowledged {
	return &acknowledged{
		ttl: names.DefaultConfig(), quota: quota.New(maxAcknowledgedOfEndpoint, maxAcknowledged),
		until: map[lookupKey]map[netip.Addr]time.Time{},
	}
}

// has reports whether all of the addresses are acknowledged for the endpoint and the name, and still valid.
func (x *acknowledged) has(endpoint uint16, name string, addresses []netip.Addr) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	known, now := x.until[lookupKey{endpoint, name}], time.Now()
	for _, addr := range addresses {
		if !known[addr].After(now) {
			return false
		}
	}
	return true
}

// add remembers an answer that an agent has learned. asked is the time before the agent was called.
func (x *acknowledged) add(answer learnRequest, asked time.Time) {
	l := names.Lookup{Endpoint: answer.Endpoint, Name: answer.Name, Addresses: map[netip.Addr]time.Time{}}
	for _, a := range answer.Addresses {
		addr, until := names.Normalize(a.Addr), asked.Add(min(max(a.TTL, x.ttl.MinTTL), x.ttl.MaxTTL))
		if until.After(l.Addresses[addr]) {
			l.Addresses[addr] = until
		}
	}
	x.restore(l)
}

// restore adds addresses that the previous proxy remembered, as far as there is room.
func (x *acknowledged) restore(l names.Lookup) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := lookupKey{l.Endpoint, l.Name}
	for addr, until := range l.Addresses {
		before, ok := x.until[key][addr]
		if !ok && x.quota.Acquire(l.Endpoint, 1) != quota.Acquired {
			continue
		}
		if x.until[key] == nil {
			x.until[key] = map[netip.Addr]time.Time{}
		}
		if until.After(before) {
			x.until[key][addr] = until
		}
	}
}

// list returns everything, for the next proxy.
func (x *acknowledged) list() (all []names.Lookup) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, addresses := range x.until {
		all = append(all, names.Lookup{Endpoint: key.endpoint, Name: key.name, Addresses: maps.Clone(addresses)})
	}
	return all
}

// removeEndpoint removes all addresses of an endpoint that is gone: another endpoint may get its ID soon.
func (x *acknowledged) removeEndpoint(id uint16) {
	x.remove(func(key lookupKey, _ time.Time) bool { return key.endpoint == id })
}

// expire removes addresses that are no longer valid. [Server.reportLoop] calls it every few seconds.
func (x *acknowledged) expire() {
	now := time.Now()
	x.remove(func(_ lookupKey, until time.Time) bool { return !until.After(now) })
}

func (x *acknowledged) remove(is func(lookupKey, time.Time) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for key, addresses := range x.until {
		for addr, until := range addresses {
			if is(key, until) {
				delete(addresses, addr)
				x.quota.Release(key.endpoint, 1)
			}
		}
		if len(addresses) == 0 {
			delete(x.until, key)
		}
	}
}
