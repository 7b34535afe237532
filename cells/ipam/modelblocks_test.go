package ipam_test

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"porin.dev/porin/cells/endpointmanager"
	"porin.dev/porin/cells/ipam"
)

// TestBlocksAgainstASlowTruth runs random operations on a node whose blocks come and go, with restarts, and checks each
// answer against plain maps. Every other seed has somebody who names addresses.
func TestBlocksAgainstASlowTruth(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			m := newModel(t, seed)
			for range 600 {
				m.step()
			}
		})
	}
}

const modelRest = 30 * time.Second

// modelKnows is how long a restarted agent knows of a release.
const modelKnows = 20 * time.Minute

// model is a node and the truth about it. Times that are zero are never.
type model struct {
	*testing.T
	*rand.Rand
	n      ipam.Node
	named  *names
	noisy  bool
	blocks map[netip.Prefix]bool // to whether it is drained
	has    map[ipam.Handle]modelOwner
	free   map[netip.Addr]time.Time // since when
	listed []ipam.Allocation        // of some time ago
	tokens []ipam.Reservation       // all there ever were
}

type modelOwner struct {
	addr     netip.Addr
	external bool
	ends     time.Time
	token    string
}

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		T: t, Rand: rand.New(rand.NewPCG(seed, 1)), named: newNames(), noisy: seed%2 == 1, blocks: map[netip.Prefix]bool{},
		has: map[ipam.Handle]modelOwner{}, free: map[netip.Addr]time.Time{},
	}
	m.start()
	return m
}

func (m *model) start() {
	m.n = multiPool(m.T, nil)
	if m.noisy {
		m.n = multiPool(m.T, m.named)
	}
	m.blocks, m.listed = map[netip.Prefix]bool{}, nil
}

func (m *model) step() {
	m.expire()
	owner := ipam.Handle(fmt.Sprintf("porin.c%d.eth0", m.IntN(40)))
	ops := []func(ipam.Handle){
		m.allocate, m.allocate, m.allocate, m.take, m.adopt, m.release, m.release, m.lateRelease, m.reserve, m.giveUp,
		m.addBlock, m.addBlock, m.drain, m.remove, m.sleep, m.sleep, m.name, m.ask,
	}
	if m.IntN(60) == 0 {
		m.restart()
	} else {
		ops[m.IntN(len(ops))](owner)
	}
	m.check()
}

// expire does what time does.
func (m *model) expire() {
	for owner, o := range m.has {
		if !o.ends.IsZero() && !time.Now().Before(o.ends) {
			m.vacate(owner, o.ends)
		}
	}
}

func (m *model) vacate(owner ipam.Handle, at time.Time) {
	o := m.has[owner]
	delete(m.has, owner)
	if !o.external {
		m.free[o.addr] = at
	} else if _, ok := m.blockOf(o.addr); ok {
		m.free[o.addr] = at.Add(-modelRest)
		m.named.cleared[o.addr] = at
	} // without a block, what was known before it is known still
}

func (m *model) blockOf(addr netip.Addr) (netip.Prefix, bool) {
	for b := range m.blocks {
		if b.Contains(addr) {
			return b, true
		}
	}
	return netip.Prefix{}, false
}

func (m *model) ownerOf(addr netip.Addr) (ipam.Handle, bool) {
	for owner, o := range m.has {
		if o.addr == addr {
			return owner, true
		}
	}
	return "", false
}

// ready tells whether an address may be given out now.
func (m *model) ready(addr netip.Addr) bool {
	b, ok := m.blockOf(addr)
	_, used := m.ownerOf(addr)
	return ok && !used && !m.blocks[b] && time.Since(m.free[addr]) >= modelRest
}

// judge holds an answer against the longest free address that there is.
func (m *model) judge(owner ipam.Handle, got netip.Addr, err error) (given bool) {
	m.Helper()
	var oldest time.Time
	found := false
	for _, addr := range universe() {
		if m.ready(addr) && (!found || m.free[addr].Before(oldest)) {
			oldest, found = m.free[addr], true
		}
	}
	switch {
	case err != nil && (found && !m.noisy || !errors.Is(err, ipam.ErrExhausted)):
		m.Fatalf("allocate for %s: %v, and one is free since %s", owner, err, oldest)
	case err != nil:
		return false
	case !m.ready(got):
		m.Fatalf("allocate for %s gave %s, which is not ready", owner, got)
	case !m.noisy && !m.free[got].Equal(oldest):
		m.Fatalf("allocate for %s gave %s, free since %s, and the oldest is since %s", owner, got, m.free[got], oldest)
	case !m.isClear(got):
		m.Fatalf("allocate for %s gave %s, and nobody has said that it is not named", owner, got)
	}
	return true
}

// isClear tells whether somebody has said, since the address has rested, that it is not named; or nobody needs to.
func (m *model) isClear(addr netip.Addr) bool {
	since := m.free[addr]
	return !m.noisy || since.IsZero() || time.Since(since) > 19*time.Minute || !m.named.cleared[addr].Before(since.Add(modelRest))
}

func (m *model) allocate(owner ipam.Handle) {
	got, err := get(m.n, owner)
	if o, ok := m.has[owner]; ok {
		m.again(owner, o, got, err)
		return
	}
	if err == nil {
		addr := netip.MustParseAddr(got)
		if m.judge(owner, addr, err) {
			m.has[owner] = modelOwner{addr: addr}
		}
		return
	}
	m.judge(owner, netip.Addr{}, err)
}

func (m *model) again(owner ipam.Handle, o modelOwner, got string, err error) {
	m.Helper()
	if o.token != "" {
		wantFault(m.T, "what is reserved", err, ipam.ErrInUse)
	} else if err != nil || got != o.addr.String() {
		m.Fatalf("allocate for %s again: %s, %v, and it has %s", owner, got, err, o.addr)
	}
}

func (m *model) take(owner ipam.Handle) {
	addr := m.anyAddress()
	want := endpointmanager.Addresses{IPv4: addr}
	_, err := m.n.Allocator.Allocate(m.Context(), ipam.Request{Owner: owner, Want: want})
	if o, ok := m.has[owner]; ok {
		if (err == nil) != (o.addr == addr && o.token == "") {
			m.Fatalf("%s has %s and wants %s: %v", owner, o.addr, addr, err)
		}
		return
	}
	if err == nil && m.ready(addr) && m.isClear(addr) {
		m.has[owner] = modelOwner{addr: addr}
	} else if err == nil || m.ready(addr) && !m.noisy {
		m.Fatalf("take %s for %s: %v; ready: %v", addr, owner, err, m.ready(addr))
	}
}

func (m *model) adopt(owner ipam.Handle) {
	o := modelOwner{addr: m.anyAddress(), external: m.IntN(2) == 0}
	err := m.n.Allocator.Adopt(ipam.Allocation{Owner: owner, External: o.external, Addresses: endpointmanager.Addresses{IPv4: o.addr}})
	_, used := m.ownerOf(o.addr)
	was, has := m.has[owner]
	switch {
	case has && was.addr == o.addr && was.token == "":
		if err != nil {
			m.Fatalf("adopt %s for %s again: %v", o.addr, owner, err)
		}
	case used || has:
		wantFault(m.T, "adopt what is another's", err, ipam.ErrInUse)
		if !used {
			return // the owner has another one: nothing is changed
		}
	case err != nil:
		m.Fatalf("adopt %s for %s: %v", o.addr, owner, err)
	default:
		m.has[owner] = o
	}
}

func (m *model) release(owner ipam.Handle) {
	_, has := m.has[owner]
	if got := m.n.Allocator.Release(owner); got != has {
		m.Fatalf("release of %s is %v, want %v", owner, got, has)
	}
	if has {
		m.vacate(owner, time.Now())
	}
}

// lateRelease acts on a list of some time ago: it may hit nobody who has asked for anything since.
func (m *model) lateRelease(ipam.Handle) {
	for _, old := range m.listed {
		now := slices.IndexFunc(m.n.Allocator.List(), func(a ipam.Allocation) bool { return a == old })
		if got := m.n.Allocator.ReleaseListed(old); got != (now >= 0) {
			m.Fatalf("release of %+v is %v", old, got)
		} else if got {
			m.vacate(old.Owner, time.Now())
			break
		}
	}
	m.listed = m.n.Allocator.List()
	slices.SortFunc(m.listed, func(a, b ipam.Allocation) int { return cmp.Compare(a.Seq, b.Seq) })
}

func (m *model) reserve(owner ipam.Handle) {
	got, err := m.n.Reserver.Reserve(m.Context(), ipam.Request{Owner: owner}, time.Duration(1+m.IntN(120))*time.Second)
	if _, ok := m.has[owner]; ok {
		wantFault(m.T, "reserve for who has something", err, ipam.ErrInUse)
		return
	}
	if m.judge(owner, got.Addresses.IPv4, err) {
		m.has[owner] = modelOwner{addr: got.Addresses.IPv4, ends: got.Expires, token: got.Token}
		m.tokens = append(m.tokens, got)
	}
}

// giveUp gives a reservation up, or has an endpoint take it over; many are over by then.
func (m *model) giveUp(owner ipam.Handle) {
	if len(m.tokens) == 0 {
		return
	}
	r := m.tokens[m.IntN(len(m.tokens))]
	o, ok := m.has[r.Owner]
	lives := ok && o.token == r.Token
	if _, has := m.has[owner]; has || m.IntN(2) == 0 {
		_, err := m.n.Reserver.Return(r.Addresses.IPv4, r.Token)
		if (err == nil) != lives {
			m.Fatalf("return %+v: %v", r, err)
		}
		if lives {
			m.vacate(r.Owner, time.Now())
		}
		return
	}
	_, err := m.n.Allocator.Allocate(m.Context(), ipam.Request{Owner: owner, Reservation: r.Token})
	if (err == nil) != lives {
		m.Fatalf("take over %+v: %v", r, err)
	}
	if lives {
		delete(m.has, r.Owner)
		m.has[owner] = modelOwner{addr: o.addr}
	}
}

func (m *model) sleep(ipam.Handle) { time.Sleep(time.Duration(m.IntN(20_000)) * time.Millisecond) }

func (m *model) name(ipam.Handle) {
	if m.noisy {
		m.named.set(m.anyAddress().String(), m.IntN(2) == 0)
	}
}

// ask is what is done in the background.
func (m *model) ask(ipam.Handle) { m.n.Asker.Ask(m.Context()) }
