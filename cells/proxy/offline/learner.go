package offline

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/cells/proxy/dnsname"
	"porin.dev/porin/cells/proxy/names"
	"porin.dev/porin/internal/fault"
)

var (
	// ErrAgent is returned while an agent is there: it learns names.
	ErrAgent = fault.New(fault.Unavailable, "names are learned by the agent")
	// ErrClosed is returned after [Learner.Close], and before there are maps.
	ErrClosed = fault.New(fault.Unavailable, "no maps are open to learn names")
	// ErrStale is returned when nobody has told of the classes of the policies that are in the datapath.
	ErrStale = fault.New(fault.Unavailable, "it is not known what the policies in the datapath have reserved for names")
	// ErrNotReserved is returned for a name whose address would need a class that only an agent can make.
	ErrNotReserved = fault.New(fault.Unavailable, "no class is reserved for the rules that match the name, and no agent runs")
	// ErrProtected is returned for an address that no name can have: of the cluster, or one that no other machine has. All others of the same answer are learned.
	ErrProtected = fault.New(fault.Invalid, "an address is of the cluster, or of no other machine")
)

// Counts is what became of names since the start.
type Counts struct {
	Learned     uint64 // calls that wrote nothing or addresses, and returned no error
	Written     uint64 // addresses that got another class
	Stale       uint64
	NotReserved uint64
	Protected   uint64
	Full        uint64
}

// Learner learns names in the place of an agent. Whether an agent is there it knows by the [policymap.Lock].
type Learner struct {
	journal *Journal
	source  Source
	ttl     names.Config // only MinTTL and MaxTTL are used

	mu      sync.Mutex // guards the fields below; held while something is written
	writer  *policymap.NameWriter
	lock    *policymap.Lock
	locked  bool     // this learner has it
	classes *classes // of the policies that were in the datapath last; nil: none are known
	counts  Counts
	// now has classes that addresses of names have in the datapath, under the revision of classes: a known name asks the kernel for its revision alone. They were read under the
	// lock, and the first write of an agent that gets it has another revision.
	now map[netip.Addr]engine.ClassID
}

// New returns a learner for the maps of the policy and their lock, whose classes it reads from the source. A learner of nil maps has to be told of others.
func New(maps policymap.Maps, lock *policymap.Lock, journal *Journal, source Source) *Learner {
	return &Learner{writer: policymap.NewNameWriter(maps), lock: lock, journal: journal, source: source, ttl: names.DefaultConfig(), now: map[netip.Addr]engine.ClassID{}}
}

// UseMaps has other maps be written from now on: an agent that was updated may have others. When it returns, those of before may be closed, and their lock.
func (l *Learner) UseMaps(maps policymap.Maps, lock *policymap.Lock) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.writer.Close()
	l.writer, l.lock, l.classes = policymap.NewNameWriter(maps), lock, nil
	clear(l.now)
	return err
}

// Close returns when nothing is being written, and nothing will be: [ErrClosed]. The journal stays open.
func (l *Learner) Close() error { return l.UseMaps(policymap.Maps{}, nil) }

// Counts returns what became of names.
func (l *Learner) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// Learn returns when the addresses are in the datapath and in the journal. It waits for nothing but the kernel.
func (l *Learner) Learn(ctx context.Context, endpoint uint16, name string, addresses []dnsname.Address) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.learn(endpoint, name, addresses)
	c := &l.counts
	switch {
	case err == nil:
		c.Learned++
	case errors.Is(err, ErrStale):
		c.Stale++
	case errors.Is(err, ErrNotReserved):
		c.NotReserved++
	case errors.Is(err, ErrProtected):
		c.Protected++
	case errors.Is(err, ErrFull):
		c.Full++
	}
	if err != nil {
		return fmt.Errorf("learn %s: %w", name, err)
	}
	return nil
}

func (l *Learner) learn(endpoint uint16, name string, addresses []dnsname.Address) (err error) {
	if l.lock == nil {
		return ErrClosed
	}
	if err := l.lock.TryLock(); err != nil {
		return fmt.Errorf("%w: %w", ErrAgent, err)
	}
	l.locked = true
	defer func() {
		l.locked = false
		err = errors.Join(err, l.lock.Unlock())
	}()
	if err := l.read(); err != nil {
		return err
	}
	rules := l.classes.matching(name)
	answer := l.deadlines(addresses)
	if len(rules) == 0 { // for policies to come
		if err := l.journal.Add(endpoint, name, answer, false); err != nil && !errors.Is(err, ErrFull) {
			return err
		}
		return nil
	}
	moves, protected, err := l.moves(rules, addresses)
	if err != nil {
		return err
	}
	for _, addr := range protected {
		delete(answer, addr)
	}
	if err := l.journal.Add(endpoint, name, answer, true); err != nil { // first: what is in the datapath must outlive the next agent's start
		return err
	}
	if len(moves) > 0 {
		if err := l.writer.Move(l.classes.revision, moves); err != nil {
			return stale(err)
		}
		l.counts.Written += uint64(len(moves))
		for _, move := range moves {
			l.note(move.Address, move.To)
		}
	}
	if len(protected) > 0 {
		return fmt.Errorf("%w: %s", ErrProtected, protected[0])
	}
	return nil
}

// InForce reports whether the datapath decides by the rules that match the name already, for all addresses. It changes nothing, and may be asked while an agent is there.
func (l *Learner) InForce(name string, addresses []dnsname.Address) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lock == nil || l.read() != nil {
		return false
	}
	rules := l.classes.matching(name)
	if len(rules) > 0 {
		if moves, _, err := l.moves(rules, addresses); err != nil || len(moves) > 0 {
			return false
		}
	}
	return l.writer.Check(l.classes.revision) == nil
}

// read reads the class file again if the revision of the datapath has changed.
func (l *Learner) read() error {
	revision, err := l.writer.Revision()
	if err != nil || l.classes != nil && l.classes.revision == revision {
		return err
	}
	l.classes = nil
	clear(l.now)
	snapshot, err := l.source(revision)
	if err == nil {
		l.classes, err = compile(snapshot)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return nil
}

// deadlines returns until when the addresses are valid, without those that no name can have.
func (l *Learner) deadlines(addresses []dnsname.Address) map[netip.Addr]time.Time {
	now := time.Now()
	all := make(map[netip.Addr]time.Time, len(addresses))
	for _, a := range addresses {
		addr := plain(a.Addr)
		expires := now.Add(min(max(a.TTL, l.ttl.MinTTL), l.ttl.MaxTTL))
		if !names.IsLocalScope(addr) && expires.After(all[addr]) {
			all[addr] = expires
		}
	}
	return all
}

func plain(addr netip.Addr) netip.Addr { return addr.Unmap().WithZone("") }

// moves returns the addresses that need another class, and those that no name can have.
func (l *Learner) moves(rules []int, addresses []dnsname.Address) (moves []policymap.NameMove, protected []netip.Addr, err error) {
	seen := make(map[netip.Addr]bool, len(addresses))
	for _, a := range addresses {
		addr := plain(a.Addr)
		if seen[addr] {
			continue
		}
		seen[addr] = true
		if names.IsLocalScope(addr) {
			protected = append(protected, addr)
			continue
		}
		class, isProtected, err := l.class(addr)
		switch then, ok := l.classes.with(class, rules); {
		case err != nil:
			return nil, nil, err
		case isProtected:
			protected = append(protected, addr)
		case !ok:
			return nil, nil, fmt.Errorf("%w: %s", ErrNotReserved, addr)
		case then == class:
			l.note(addr, class)
		default:
			moves = append(moves, policymap.NameMove{Address: addr, From: class, To: then})
		}
	}
	return moves, protected, nil
}

// class is that of an address in the datapath.
func (l *Learner) class(addr netip.Addr) (class engine.ClassID, isProtected bool, err error) {
	if class, ok := l.now[addr]; ok {
		return class, false, nil
	}
	return l.writer.Class(l.classes.revision, addr)
}

// maxNow bounds what is remembered of the datapath.
const maxNow = 1 << 16

func (l *Learner) note(addr netip.Addr, class engine.ClassID) {
	if !l.locked { // an agent may change it
		return
	}
	if len(l.now) >= maxNow {
		clear(l.now)
	}
	l.now[addr] = class
}

// stale gives errors of the maps those of this package.
func stale(err error) error {
	switch {
	case errors.Is(err, policymap.ErrOtherRevision):
		return fmt.Errorf("%w: %w", ErrStale, err)
	case errors.Is(err, policymap.ErrNoRoom):
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
