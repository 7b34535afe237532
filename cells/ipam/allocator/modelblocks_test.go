package allocator_test

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

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/fault"
)

// TestBlocksModel runs random operations on a node whose blocks come and go, with restarts, and checks each answer
// against plain maps, and the allocator's memory for consistency. Every other seed has a cleanup, half of them a store.
func TestBlocksModel(t *testing.T) {
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

// modelKnows is how long a release is known of whose address lies in no block, and to a restarted agent.
const modelKnows = allocator.MaxQuarantine

// model is a node and the truth about it. Times that are zero are never.
type model struct {
	*testing.T
	*rand.Rand
	n       *allocator.Allocator
	cleans  bool
	cleanup allocator.Cleanup
	store   memoryStore           // nil: none
	blocks  map[netip.Prefix]bool // to whether it is drained
	has     map[allocator.Handle]modelOwner
	free    map[netip.Addr]time.Time // since when
	dirty   map[netip.Addr]bool      // released and not cleaned up
	listed  []allocator.Allocation   // of some time ago
	tokens  []allocator.Reservation  // all there ever were
	exclude []netip.Prefix
}

type modelOwner struct {
	addr     netip.Addr
	external bool
	ends     time.Time
	token    string
	restored bool // of before the last restart
}

// isPermanent reports whether it is a permanent reservation.
func (o modelOwner) isPermanent() bool { return o.token != "" && o.ends.IsZero() }

// memoryStore is a store whose disk is this process.
type memoryStore map[string]allocator.Reservation

func (s memoryStore) Save(r allocator.Reservation) error { s[r.Token] = r; return nil }
func (s memoryStore) Delete(token string) error          { delete(s, token); return nil }

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		T: t, Rand: rand.New(rand.NewPCG(seed, 1)), cleans: seed%2 == 1, blocks: map[netip.Prefix]bool{},
		has: map[allocator.Handle]modelOwner{}, free: map[netip.Addr]time.Time{}, dirty: map[netip.Addr]bool{},
	}
	if seed%4 > 1 {
		m.store = memoryStore{}
	}
	m.start()
	return m
}

func (m *model) start() {
	m.n = allocator.New(nil)
	if m.store != nil {
		m.n = allocator.New(m.store)
	}
	m.configure()
	if m.cleans {
		m.cleanup = m.n.Cleanup(func() {})
	}
	m.blocks, m.listed = map[netip.Prefix]bool{}, nil
	clear(m.dirty)
}

func (m *model) step() {
	m.expire()
	owner := allocator.Handle(fmt.Sprintf("porin.c%d.eth0", m.IntN(40)))
	ops := []func(allocator.Handle){
		m.allocate, m.allocate, m.allocate, m.take, m.adopt, m.release, m.release, m.lateRelease, m.reserve, m.giveUp,
		m.addBlock, m.addBlock, m.drain, m.remove, m.sleep, m.sleep, m.clean, m.changeExclude,
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
	for addr, since := range m.free {
		if _, in := m.blockOf(addr); !in && !m.dirty[addr] && time.Since(since) >= modelKnows {
			delete(m.free, addr)
		}
	}
}

func (m *model) vacate(owner allocator.Handle, at time.Time) {
	o := m.has[owner]
	delete(m.has, owner)
	if !o.external {
		m.free[o.addr], m.dirty[o.addr] = at, m.cleans
	} else if _, ok := m.blockOf(o.addr); ok {
		m.free[o.addr] = at.Add(-modelRest)
	} else {
		delete(m.free, o.addr)
	}
}

// handOver makes what is reserved for a time an owner's.
func (m *model) handOver(from, to allocator.Handle) {
	was := m.has[from]
	delete(m.has, from)
	m.has[to] = modelOwner{addr: was.addr}
}

func (m *model) give(owner allocator.Handle, o modelOwner) {
	m.has[owner] = o
	delete(m.dirty, o.addr)
}

func (m *model) blockOf(addr netip.Addr) (netip.Prefix, bool) {
	for b := range m.blocks {
		if b.Contains(addr) {
			return b, true
		}
	}
	return netip.Prefix{}, false
}

func (m *model) ownerOf(addr netip.Addr) (allocator.Handle, bool) {
	for owner, o := range m.has {
		if o.addr == addr {
			return owner, true
		}
	}
	return "", false
}

// ready reports whether an address may be given out now.
func (m *model) ready(addr netip.Addr) bool { return m.refusal(addr) == nil }

// judge holds an answer against the longest free address that there is.
func (m *model) judge(owner allocator.Handle, got netip.Addr, err error) (given bool) {
	m.Helper()
	var oldest time.Time
	found := false
	for _, addr := range universe() {
		if m.ready(addr) && (!found || m.free[addr].Before(oldest)) {
			oldest, found = m.free[addr], true
		}
	}
	switch {
	case err != nil && (found || !errors.Is(err, allocator.ErrExhausted)):
		m.Fatalf("allocate for %s: %v, and one is free since %s", owner, err, oldest)
	case err != nil:
		return false
	case !m.ready(got):
		m.Fatalf("allocate for %s gave %s, which is not ready", owner, got)
	case !m.free[got].Equal(oldest):
		m.Fatalf("allocate for %s gave %s, free since %s, and the oldest is since %s", owner, got, m.free[got], oldest)
	}
	return true
}

func (m *model) allocate(owner allocator.Handle) {
	got, err := get(m.n, owner)
	if o, ok := m.has[owner]; ok {
		m.again(owner, o, got, err)
		return
	}
	if err == nil {
		addr := netip.MustParseAddr(got)
		if m.judge(owner, addr, err) {
			m.give(owner, modelOwner{addr: addr})
		}
		return
	}
	m.judge(owner, netip.Addr{}, err)
}

func (m *model) again(owner allocator.Handle, o modelOwner, got string, err error) {
	m.Helper()
	if o.token != "" {
		wantFault(m.T, "what is reserved", err, allocator.ErrInUse)
	} else if err != nil || got != o.addr.String() {
		m.Fatalf("allocate for %s again: %s, %v, and it has %s", owner, got, err, o.addr)
	}
}

func (m *model) take(owner allocator.Handle) {
	addr := m.anyAddress()
	want := endpoint.Addresses{IPv4: addr}
	_, err := m.n.Allocate(allocator.Request{Owner: owner, Want: want})
	if o, ok := m.has[owner]; ok {
		if (err == nil) != (o.addr == addr && o.token == "") {
			m.Fatalf("%s has %s and wants %s: %v", owner, o.addr, addr, err)
		}
		return
	}
	if want := m.refusal(addr); want != nil {
		wantFault(m.T, fmt.Sprintf("take %s", addr), err, want)
	} else if err != nil {
		m.Fatalf("take %s for %s: %v", addr, owner, err)
	} else {
		m.give(owner, modelOwner{addr: addr})
	}
}

// refusal is the error for who wants an address; nil when it is to be had.
func (m *model) refusal(addr netip.Addr) error {
	block, in := m.blockOf(addr)
	_, used := m.ownerOf(addr)
	switch {
	case !in || m.excluded(addr):
		return allocator.ErrOutside
	case used:
		return allocator.ErrInUse
	case m.rests(addr):
		return allocator.ErrQuarantined
	case m.blocks[block]:
		return allocator.ErrOutside
	}
	return nil
}

func (m *model) adopt(owner allocator.Handle) {
	o := modelOwner{addr: m.anyAddress(), external: m.IntN(2) == 0}
	err := m.n.Adopt(allocator.Allocation{Owner: owner, External: o.external, Addresses: endpoint.Addresses{IPv4: o.addr}})
	other, used := m.ownerOf(o.addr)
	was, has := m.has[owner]
	if used && m.has[other].isPermanent() && !o.external {
		if err != nil {
			m.Fatalf("adopt %s for %s, which %s has reserved permanently: %v", o.addr, owner, other, err)
		}
		return
	}
	if used && !has && m.has[other].restored {
		m.vacate(other, time.Now())
		used = false
	}
	switch {
	case has && was.addr == o.addr && was.token == "":
		if err != nil {
			m.Fatalf("adopt %s for %s again: %v", o.addr, owner, err)
		}
	case used || has:
		wantFault(m.T, "adopt what is another's", err, allocator.ErrInUse)
		if !used {
			return // the owner has another one: nothing is changed
		}
	case err != nil:
		m.Fatalf("adopt %s for %s: %v", o.addr, owner, err)
	default:
		m.give(owner, o)
	}
}

func (m *model) release(owner allocator.Handle) {
	o, has := m.has[owner]
	has = has && o.token == ""
	if got := m.n.Release(owner); got != has {
		m.Fatalf("release of %s is %v, want %v", owner, got, has)
	}
	if has {
		m.vacate(owner, time.Now())
	}
}

// lateRelease acts on an old list: it must not hit an owner that has asked for addresses since.
func (m *model) lateRelease(allocator.Handle) {
	for _, old := range m.listed {
		now := slices.IndexFunc(m.n.List(), func(a allocator.Allocation) bool { return a == old && !a.Reserved })
		if got := m.n.ReleaseListed(old); got != (now >= 0) {
			m.Fatalf("release of %+v is %v", old, got)
		} else if got {
			m.vacate(old.Owner, time.Now())
			break
		}
	}
	m.listed = m.n.List()
	slices.SortFunc(m.listed, func(a, b allocator.Allocation) int { return cmp.Compare(a.Seq, b.Seq) })
}

func (m *model) reserve(owner allocator.Handle) {
	lifetime := time.Duration(1+m.IntN(120)) * time.Second
	if m.IntN(4) == 0 {
		lifetime = allocator.Permanent
	}
	got, err := m.n.Reserve(allocator.Request{Owner: owner}, lifetime)
	if _, ok := m.has[owner]; ok {
		wantFault(m.T, "reserve for who has something", err, allocator.ErrInUse)
		return
	}
	if m.judge(owner, got.Addresses.IPv4, err) {
		m.give(owner, modelOwner{addr: got.Addresses.IPv4, ends: got.Expires, token: got.Token})
		m.tokens = append(m.tokens, got)
	}
}

// giveUp releases a reservation, or an endpoint takes it over. Many have expired before that.
func (m *model) giveUp(owner allocator.Handle) {
	if len(m.tokens) == 0 {
		return
	}
	r := m.tokens[m.IntN(len(m.tokens))]
	o, ok := m.has[r.Owner]
	lives := ok && o.token == r.Token
	if _, has := m.has[owner]; has || m.IntN(2) == 0 {
		_, err := m.n.ReleaseReservation(r.Addresses.IPv4, r.Token, nil)
		if (err == nil) != lives {
			m.Fatalf("return %+v: %v", r, err)
		}
		if lives {
			m.vacate(r.Owner, time.Now())
		}
		return
	}
	_, err := m.n.Allocate(allocator.Request{Owner: owner, Reservation: r.Token})
	if block, in := m.blockOf(r.Addresses.IPv4); lives && (!in || m.blocks[block]) {
		if fault.KindOf(err) != fault.Unavailable {
			m.Fatalf("take over %+v, whose block gives nothing out: %v", r, err)
		}
		return
	}
	if (err == nil) != lives {
		m.Fatalf("take over %+v: %v", r, err)
	}
	if lives && !r.Permanent {
		m.handOver(r.Owner, owner)
	}
}

func (m *model) sleep(allocator.Handle) { time.Sleep(time.Duration(m.IntN(20_000)) * time.Millisecond) }

// clean is what is done in the background.
func (m *model) clean(allocator.Handle) {
	if m.cleans {
		m.cleanup.Done(m.cleanup.Pending())
		clear(m.dirty)
	}
}
