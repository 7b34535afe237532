package policymap

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy/engine"
	"porin.dev/porin/internal/bpfarray"
)

// ErrOtherRevision is returned when the maps do not have the revision that the caller knows.
var ErrOtherRevision = errors.New("the policy in the maps is another one")

// Revision is the value of the map active_copy: the number of the active copy, and in the other bits a random number. It is another one whenever the numbers of the
// classes in [engine.Engine.NameClasses] may mean something else than before.
func (m Maps) Revision() (revision uint32, err error) {
	if revision, err = bpfarray.Read[uint32](m.ActiveCopy, 0); err != nil {
		err = fmt.Errorf("read which copy of the policy is active: %w", err)
	}
	return revision, err
}

// setRevision makes a copy the active one, under another revision, which is announced before, unless announce is nil.
func (m Maps) setRevision(copyNumber uint32, announce func(inForce, next uint32)) error {
	before, err := m.Revision()
	if err != nil {
		return err
	}
	revision := before
	for revision/abi.PolicyCopies == before/abi.PolicyCopies {
		revision = rand.Uint32()
	}
	revision = revision/abi.PolicyCopies*abi.PolicyCopies + copyNumber
	if announce != nil {
		announce(before, revision)
	}
	if err := m.ActiveCopy.Put(uint32(0), revision); err != nil {
		return fmt.Errorf("activate a copy of the policy: %w", err)
	}
	return nil
}

// NameWriter gives addresses that names have their classes. Who uses it has the [Lock], so that no [Writer] is at work; but one that goes on late, when a writer
// has not waited for it, does no harm: it writes nothing under another revision, and of policies only their revisions. It is for one goroutine at a time. The next
// writer does not know of these entries. It writes a whole copy, and so removes them.
type NameWriter struct {
	maps     Maps
	programs *namePrograms        // nil until needed
	revision uint32               // of what follows
	entries  int                  // of the copy in the map prefixes, or more; -1: not counted
	differs  map[classChange]bool // have the classes other rows?
}

// NewNameWriter returns a writer for the maps.
func NewNameWriter(m Maps) *NameWriter { return &NameWriter{maps: m, entries: -1} }

// Close ends the use of the writer.
func (w *NameWriter) Close() error {
	if w.programs == nil {
		return nil
	}
	return w.programs.close()
}

// NameMove is an address that gets another class.
type NameMove struct {
	Address  netip.Addr
	From, To engine.ClassID
}

// Class returns the class of an address in the copy of the revision. protected says that the address is an endpoint's, such as a pod's or a node's, or in a
// range of pods: it must not be moved.
func (w *NameWriter) Class(revision uint32, addr netip.Addr) (class engine.ClassID, protected bool, err error) {
	copyNumber := revision % abi.PolicyCopies
	if _, protected, err = lookup(w.maps.Addresses, addressKey(addr, copyNumber)); err != nil || protected {
		return 0, protected, err
	}
	value, err := w.maps.classOf(addr, copyNumber)
	return engine.ClassID(value &^ abi.ClassBits), value&abi.ClassBits != 0, err
}

// Revision is that of the maps.
func (w *NameWriter) Revision() (uint32, error) { return w.maps.Revision() }

// Check returns [ErrOtherRevision] if the maps have another one.
func (w *NameWriter) Check(revision uint32) error {
	now, err := w.maps.Revision()
	if err == nil && now != revision {
		err = ErrOtherRevision
	}
	return err
}

// Move gives addresses their classes, and has connections decided anew of which the decision may change by that. When it returns, the next packet is decided by the
// new class. After an error some addresses may have their new class. With [ErrOtherRevision] they have it under the revision that was asked for.
func (w *NameWriter) Move(revision uint32, moves []NameMove) (err error) {
	if err := w.Check(revision); err != nil {
		return err
	}
	if w.programs == nil {
		if w.programs, err = loadNamePrograms(w.maps); err != nil {
			return err
		}
	}
	if err := w.count(revision, len(moves)); err != nil {
		return err
	}
	for _, move := range moves {
		if err := w.programs.giveClass(revision, move); err != nil {
			return fmt.Errorf("write the class of %s: %w", move.Address, noRoom(err))
		}
		w.entries++
	}
	if err := w.raise(revision%abi.PolicyCopies, moves); err != nil {
		return err
	}
	return w.Check(revision)
}

// count returns [ErrNoRoom] if the copy would have more than its share of the map prefixes: the next [Writer] needs the other one. It counts the entries once for
// each revision.
func (w *NameWriter) count(revision uint32, more int) error {
	if w.entries < 0 || w.revision != revision {
		w.revision, w.entries, w.differs = revision, 0, map[classChange]bool{}
		err := eachEntry(w.maps.Prefixes, func(k abi.PrefixKey, _ uint32) error {
			if k.Copy == revision%abi.PolicyCopies {
				w.entries++
			}
			return nil
		})
		if err != nil {
			w.entries = -1
			return err
		}
	}
	if w.entries+more > room(w.maps.Prefixes) {
		return fmt.Errorf("%w: more than %d ranges of addresses", ErrNoRoom, room(w.maps.Prefixes))
	}
	return nil
}

// raise raises the revision of each endpoint whose tables have other rows for the old class of an address than for the new one.
func (w *NameWriter) raise(copyNumber uint32, moves []NameMove) error {
	changes := map[classChange]bool{}
	for _, move := range moves {
		changes[classChange{from: move.From, to: move.To}] = true
	}
	var ids []uint32
	err := eachEntry(w.maps.Policies, func(id uint32, p abi.Policy) error {
		for _, table := range []uint32{p.Egress[copyNumber], p.Ingress[copyNumber]} {
			differ, err := w.differ(table, changes)
			if err != nil {
				return err
			}
			if differ {
				ids = append(ids, id)
				return nil
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for some := range slices.Chunk(ids, len(abi.Raised{}.Ids)) {
		if err := w.programs.raise(some); err != nil {
			return fmt.Errorf("raise the revisions of %d endpoints: %w", len(some), err)
		}
	}
	return nil
}

// classChange is one of addresses, as a table sees it.
type classChange struct {
	table    uint32
	from, to engine.ClassID
}

// maxDiffers bounds what is remembered of tables.
const maxDiffers = 1 << 16

// differ reports whether the table has other rows for a class before than for the one after. Under one revision that stays as it is.
func (w *NameWriter) differ(table uint32, changes map[classChange]bool) (differ bool, err error) {
	if table == 0 || table == noTable {
		return false, nil
	}
	for change := range changes {
		change.table = table
		known, ok := w.differs[change]
		if !ok {
			var from, to uint32
			if from, err = w.rows(table, change.from); err == nil {
				to, err = w.rows(table, change.to)
			}
			if err != nil {
				return false, err
			}
			if len(w.differs) >= maxDiffers {
				clear(w.differs)
			}
			known = from != to
			w.differs[change] = known
		}
		differ = differ || known
	}
	return differ, nil
}

// rows is the number of the set of rows that a class has in a table.
func (w *NameWriter) rows(table uint32, class engine.ClassID) (uint32, error) {
	for _, c := range []engine.ClassID{class, anyClass} {
		if set, found, err := lookup(w.maps.Tables, abi.TableKey{Table: table, Class: uint32(c)}); err != nil || found {
			return set, err
		}
	}
	return abi.RowsDeny, nil
}
