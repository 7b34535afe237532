package nft

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"porin.dev/porin/internal/reconcile"
	"porin.dev/porin/internal/task"
)

// errChanged is returned when another program has changed the ruleset meanwhile.
var errChanged = errors.New("the ruleset changes all the time")

// timeout is for all exchanges of one attempt: the kernel never answers some requests that it does not understand.
const timeout = 30 * time.Second

// Owner keeps a table of one network namespace as it was applied last. Its methods may be called concurrently.
type Owner struct {
	namespace *os.File
	table     *Table
	log       *slog.Logger
	follower  *reconcile.Follower[string] // of one owner, which has the name of the table
	failed    chan struct{}               // has a token after an Apply that failed, for Run

	mu      sync.Mutex                               // guards the fields below; held during a transaction
	conn    *conn                                    // nil before the first use, and after a failure
	applied bool                                     // Apply was called
	none    bool                                     // the last Apply was of no table
	desired func(have State) (want State, err error) // of the last Apply or Update
	err     error                                    // of the last attempt to write
	// last is what the table was at that generation of the ruleset, if known. The kernel raises the generation with
	// each transaction of any program.
	last       State
	generation uint32
	known      bool
}

// New returns the owner of the table in a namespace, which must stay open until Close. It touches nothing.
func New(namespace *os.File, table *Table, log *slog.Logger) *Owner {
	o := &Owner{namespace: namespace, table: table, log: log, failed: make(chan struct{}, 1)}
	o.follower = reconcile.NewFollower[string](source{o}, log)
	return o
}

// Close closes the socket. The table stays.
func (o *Owner) Close() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.disconnect()
}

// use runs do with a socket, and keeps the socket unless do fails: then late answers may follow.
func (o *Owner) use(do func(*conn) error) (err error) {
	if o.conn == nil {
		if o.conn, err = o.table.connect(o.namespace); err != nil {
			return err
		}
	}
	err = o.conn.socket.SetDeadline(time.Now().Add(timeout))
	if err == nil {
		err = do(o.conn)
	}
	if err != nil {
		return errors.Join(err, o.disconnect())
	}
	return nil
}

func (o *Owner) disconnect() (err error) {
	o.known = false
	if o.conn != nil {
		err = o.conn.CloseLasting()
		o.conn = nil
	}
	return err
}

// attempts is how often a call tries, when other programs change the ruleset meanwhile.
const attempts = 5

func (o *Owner) try(do func(*conn) error) (err error) {
	for range attempts {
		if err = o.use(do); !errors.Is(err, errChanged) {
			break
		}
	}
	return err
}

// Apply makes the table what want says, also when other programs have changed it; nil is no table. When it fails, the
// table is as before, or as want says if the kernel has not answered in time, and Run tries again. The caller must not
// change want afterwards.
func (o *Owner) Apply(want State) error {
	return o.apply(want == nil, func(State) (State, error) { return want, nil })
}

// Update is Apply of a state that depends on what the table has: no elements without a table, or when its rules are
// damaged. Run and Compare call desired, too. It must say the same of the state that it has returned.
func (o *Owner) Update(desired func(have State) (want State, err error)) error {
	return o.apply(false, desired)
}

func (o *Owner) apply(none bool, desired func(have State) (want State, err error)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.desired, o.none, o.applied = desired, none, true
	err := o.repairLocked()
	if err != nil {
		task.Wake(o.failed)
	}
	return err
}

// Repair is the last Apply again. Before the first one it does nothing: the table may be a previous agent's.
func (o *Owner) Repair() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.repairLocked()
}

func (o *Owner) repairLocked() error {
	if !o.applied || o.none && o.known && o.last == nil { // there was no table, and no notification of one since
		return nil
	}
	o.err = o.try(o.applyLocked)
	if o.none && errors.Is(o.err, o.table.Unsupported) {
		o.err = nil // without nf_tables there is no table to remove
	}
	return o.err
}

// Err is the error of the last Apply or Repair.
func (o *Owner) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// resetNoTable makes the next Apply look for a table of another program.
func (o *Owner) resetNoTable() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = o.known && o.last != nil
}

// haveLocked returns the table, and the generation of the ruleset. It reads the table only if another program may have
// changed it.
func (o *Owner) haveLocked(c *conn) (have State, damage string, generation uint32, err error) {
	if generation, err = c.generation(); err != nil || o.known && generation == o.generation {
		return o.last, "", generation, err
	}
	have, damage, err = c.read(generation)
	return have, damage, generation, err
}

func (o *Owner) applyLocked(c *conn) error {
	have, damage, generation, err := o.haveLocked(c)
	if err != nil {
		return err
	}
	want, err := o.desired(have)
	if err != nil {
		return err
	}
	if o.known && !(damage == "" && have.equal(o.last, o.table.Sets)) {
		o.log.Warn("another program has changed the table inet " + o.table.Name + " of nftables, and it is repaired")
	}
	if damage == "" && have.equal(want, o.table.Sets) {
		o.last, o.generation, o.known = want, generation, true
		return nil
	}
	writeErr := c.write(have, want, damage != "")
	after, err := c.generation()
	switch {
	case writeErr != nil && (err != nil || after == generation):
		return o.table.Explain("change the table of nftables", writeErr)
	case writeErr != nil:
		return fmt.Errorf("%w: %w", errChanged, writeErr)
	}
	// If another program had a transaction before or after this one, the table has to be read again.
	o.last, o.generation, o.known = want, after, err == nil && after == generation+1
	return nil
}

// Read returns what the table has: nil without a table, and an empty State when more than elements is not as it should
// be. The caller must not change it.
func (o *Owner) Read() (have State, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	err = o.try(func(c *conn) error {
		have, _, _, err = o.haveLocked(c)
		return err
	})
	return have, err
}

// Compare returns how the table differs from the last Apply; not at all before the first one. It changes nothing.
func (o *Owner) Compare() (differences []string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.applied {
		return nil, nil
	}
	err = o.try(func(c *conn) error {
		have, damage, _, err := o.haveLocked(c)
		if err != nil {
			return err
		}
		want, err := o.desired(have)
		if err == nil {
			differences = o.table.differences(have, want, damage)
		}
		return err
	})
	if o.none && errors.Is(err, o.table.Unsupported) {
		return nil, nil
	}
	if len(differences) > 0 && o.err == nil && o.follower.IsContested(o.table.Name) { // else the agent could not write it
		differences = append(differences, reconcile.Contested)
	}
	return differences, err
}

func (t *Table) differences(have, want State, damage string) (list []string) {
	switch {
	case have == nil && want == nil:
		return nil
	case have == nil:
		return []string{"the table is missing"}
	case want == nil:
		return []string{"the table is there"}
	case damage != "":
		return []string{damage}
	}
	for _, s := range t.Sets {
		missing, extra := len(want[s].without(have[s])), len(have[s].without(want[s]))
		if missing+extra > 0 {
			list = append(list, fmt.Sprintf("set %s lacks %d elements of %d, and has %d others", s.Name, missing, len(want[s]), extra))
		}
	}
	return list
}

// Packets reads the counters of chains, in their order. Without a table they are 0.
func (o *Owner) Packets(chains ...string) (counts []uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.applied && o.none {
		return make([]uint64, len(chains)), nil
	}
	err = o.use(func(c *conn) error {
		counts = nil
		for _, chain := range chains {
			n, err := c.packets(chain)
			if err != nil {
				return err
			}
			counts = append(counts, n)
		}
		return nil
	})
	return counts, err
}

// Generation is the number of the last transaction of any program.
func (o *Owner) Generation() (generation uint32, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	err = o.use(func(c *conn) error {
		generation, err = c.generation()
		return err
	})
	return generation, err
}
