package offline

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/internal/fault"
)

var (
	// ErrAgentWrites is returned while an agent writes the policies: it learns names.
	ErrAgentWrites = fault.New(fault.Unavailable, "names are learned by the agent")
	// ErrClosed is returned after [Writer.Close], and before there are maps.
	ErrClosed = fault.New(fault.Unavailable, "no maps are open to learn names")
	// ErrStale is returned when nobody has told of the classes of the policies that are in the datapath.
	ErrStale = fault.New(fault.Unavailable, "it is not known what the policies in the datapath have reserved for names")
	// ErrNotReserved is returned for a name whose address would need a class that only an agent can make.
	ErrNotReserved = fault.New(fault.Unavailable, "no class is reserved for the rules that match the name, and no agent runs")
	// ErrNoJournal is returned for addresses that are to be written into the datapath while there is no journal that could be written.
	ErrNoJournal = fault.New(fault.Unavailable, "the journal of names cannot be written, and no agent runs")
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
	NoJournal   uint64
}

// Writer writes the addresses that names get into the datapath and the journal, in the place of an agent. Whether an agent is there it knows by the [policymap.Lock].
type Writer struct {
	readClasses ReadClasses
	ttl         names.Config // only MinTTL and MaxTTL are used

	mu         sync.Mutex // guards the fields below; held while something is written
	journal    *Journal   // nil: there is none
	journalErr error      // of the journal, when it was to be written last
	names      *policymap.NameWriter
	lock       *policymap.Lock
	locked     bool     // this writer has it
	classes    *classes // of the policies that were in the datapath last; nil: none are known
	counts     Counts
	// knownClasses has classes that addresses of names have in the datapath, under the revision of classes: a known name asks the kernel for its revision alone.
	// They were read under the lock, and the first write of an agent that gets it has another revision.
	knownClasses map[netip.Addr]engine.ClassID
}

// NewWriter returns a writer for the maps of the policy and their lock, whose classes it reads from the source. A writer of nil maps has to be told of others. One
// without a journal learns what needs none: names that no rule selects, and addresses that are in the datapath.
func NewWriter(maps policymap.Maps, lock *policymap.Lock, journal *Journal, readClasses ReadClasses) *Writer {
	return &Writer{names: policymap.NewNameWriter(maps), lock: lock, journal: journal, readClasses: readClasses, ttl: names.DefaultConfig(), knownClasses: map[netip.Addr]engine.ClassID{}}
}

// UseMaps has other maps be written from now on: an agent that was updated may have others. When it returns, those of before may be closed, and their lock.
func (w *Writer) UseMaps(maps policymap.Maps, lock *policymap.Lock) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.names.Close()
	w.names, w.lock, w.classes = policymap.NewNameWriter(maps), lock, nil
	clear(w.knownClasses)
	return err
}

// UseJournal has a writer without a journal use one from now on.
func (w *Writer) UseJournal(j *Journal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.journal = j
}

// JournalError is why the journal could not be written, when it was to be last.
func (w *Writer) JournalError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.journalErr
}

// Close returns when nothing is being written, and nothing will be: [ErrClosed]. The journal stays open.
func (w *Writer) Close() error { return w.UseMaps(policymap.Maps{}, nil) }

// Counts returns what became of names.
func (w *Writer) Counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts
}

// Learn returns when the addresses are in the datapath and in the journal. It waits for nothing but the kernel.
func (w *Writer) Learn(ctx context.Context, endpoint uint16, name string, addresses []dnsname.Address) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.learn(endpoint, name, addresses)
	c := &w.counts
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
	case errors.Is(err, ErrNoJournal):
		c.NoJournal++
	}
	if err != nil {
		return fmt.Errorf("learn %s: %w", name, err)
	}
	return nil
}

func (w *Writer) learn(endpoint uint16, name string, addresses []dnsname.Address) (err error) {
	if w.lock == nil {
		return ErrClosed
	}
	if err := w.lock.TryLock(); err != nil {
		return fmt.Errorf("%w: %w", ErrAgentWrites, err)
	}
	w.locked = true
	defer func() {
		w.locked = false
		err = errors.Join(err, w.lock.Unlock())
	}()
	if err := w.read(); err != nil {
		return err
	}
	rules := w.classes.matching(name)
	answer := w.deadlines(addresses)
	if len(rules) == 0 {
		_ = w.writeJournal(endpoint, name, answer, false) // for policies to come: nobody needs it now
		return nil
	}
	moves, protected, err := w.moves(rules, addresses)
	if err != nil {
		return err
	}
	for _, addr := range protected {
		delete(answer, addr)
	}
	err = w.writeJournal(endpoint, name, answer, true) // first: what is in the datapath must outlive the next agent's start
	if err != nil && len(moves) > 0 {
		return err
	}
	if len(moves) > 0 {
		if err := w.names.Move(w.classes.revision, moves); err != nil {
			return fromMapError(err)
		}
		w.counts.Written += uint64(len(moves))
		for _, move := range moves {
			w.rememberClass(move.Address, move.To)
		}
	}
	if len(protected) > 0 {
		return fmt.Errorf("%w: %s", ErrProtected, protected[0])
	}
	return nil
}

// writeJournal writes addresses into the journal.
func (w *Writer) writeJournal(endpoint uint16, name string, answer map[netip.Addr]time.Time, needed bool) error {
	if w.journal == nil {
		return ErrNoJournal
	}
	err := w.journal.Add(endpoint, name, answer, needed)
	if errors.Is(err, ErrFull) {
		return err
	}
	w.journalErr = err
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoJournal, err)
	}
	return nil
}

// InForce reports whether the datapath decides by the rules that match the name already, for all addresses. It changes nothing, and may be asked while an agent is there.
func (w *Writer) InForce(name string, addresses []dnsname.Address) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lock != nil && w.read() == nil && w.inForce(name, addresses)
}

// IsKnown is [Writer.InForce] for who cannot wait. It is false when others use the writer, or files would have to be read.
func (w *Writer) IsKnown(name string, addresses []dnsname.Address) bool {
	if !w.mu.TryLock() {
		return false
	}
	defer w.mu.Unlock()
	if w.lock == nil || w.classes == nil {
		return false
	}
	revision, err := w.names.Revision()
	return err == nil && w.classes.revision == revision && w.inForce(name, addresses)
}

// inForce expects the lock, and the classes.
func (w *Writer) inForce(name string, addresses []dnsname.Address) bool {
	rules := w.classes.matching(name)
	if len(rules) > 0 {
		if moves, _, err := w.moves(rules, addresses); err != nil || len(moves) > 0 {
			return false
		}
	}
	return w.names.Check(w.classes.revision) == nil
}

// read reads the class file again if the revision of the datapath has changed.
func (w *Writer) read() error {
	revision, err := w.names.Revision()
	if err != nil || w.classes != nil && w.classes.revision == revision {
		return err
	}
	w.classes = nil
	clear(w.knownClasses)
	snapshot, err := w.readClasses(revision)
	if err == nil {
		w.classes, err = compile(snapshot)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return nil
}

// deadlines returns until when the addresses are valid, without those that no name can have.
func (w *Writer) deadlines(addresses []dnsname.Address) map[netip.Addr]time.Time {
	now := time.Now()
	all := make(map[netip.Addr]time.Time, len(addresses))
	for _, a := range addresses {
		addr := names.Normalize(a.Addr)
		expires := now.Add(min(max(a.TTL, w.ttl.MinTTL), w.ttl.MaxTTL))
		if !names.IsLocalScope(addr) && expires.After(all[addr]) {
			all[addr] = expires
		}
	}
	return all
}

// moves returns the addresses that need another class, and those that no name can have.
func (w *Writer) moves(rules []int, addresses []dnsname.Address) (moves []policymap.NameMove, protected []netip.Addr, err error) {
	seen := make(map[netip.Addr]bool, len(addresses))
	for _, a := range addresses {
		addr := names.Normalize(a.Addr)
		if seen[addr] {
			continue
		}
		seen[addr] = true
		if names.IsLocalScope(addr) {
			protected = append(protected, addr)
			continue
		}
		class, isProtected, err := w.class(addr)
		switch then, ok := w.classes.withRules(class, rules); {
		case err != nil:
			return nil, nil, err
		case isProtected:
			protected = append(protected, addr)
		case !ok:
			return nil, nil, fmt.Errorf("%w: %s", ErrNotReserved, addr)
		case then == class:
			w.rememberClass(addr, class)
		default:
			moves = append(moves, policymap.NameMove{Address: addr, From: class, To: then})
		}
	}
	return moves, protected, nil
}

// class is that of an address in the datapath.
func (w *Writer) class(addr netip.Addr) (class engine.ClassID, isProtected bool, err error) {
	if class, ok := w.knownClasses[addr]; ok {
		return class, false, nil
	}
	return w.names.Class(w.classes.revision, addr)
}

// maxKnownClasses bounds knownClasses.
const maxKnownClasses = 1 << 16

// rememberClass expects the lock.
func (w *Writer) rememberClass(addr netip.Addr, class engine.ClassID) {
	if !w.locked { // an agent may change it
		return
	}
	if len(w.knownClasses) >= maxKnownClasses {
		clear(w.knownClasses)
	}
	w.knownClasses[addr] = class
}

// fromMapError gives errors of the maps those of this package.
func fromMapError(err error) error {
	switch {
	case errors.Is(err, policymap.ErrOtherRevision):
		return fmt.Errorf("%w: %w", ErrStale, err)
	case errors.Is(err, policymap.ErrNoRoom):
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}
