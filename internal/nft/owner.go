package nft

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// errChanged is returned when another program has changed the ruleset meanwhile.
var errChanged = errors.New("the ruleset changes all the time")

// timeout is for all exchanges of one call: the kernel never answers some requests that it does not understand.
const timeout = 30 * time.Second

// Owner keeps a table of one network namespace as it should be. Its methods may be called concurrently.
type Owner struct {
	namespace *os.File
	table     *Table
	log       *slog.Logger

	mu   sync.Mutex // guards the fields below; held during a transaction
	conn *conn      // nil before the first use, and after a failure
	// last is what the table was at that generation of the ruleset, if known. The kernel raises the generation with
	// each transaction of any program.
	last       State
	generation uint32
	known      bool
}

// New returns the owner of the table in a namespace, which must stay open until Close. It touches nothing.
func New(namespace *os.File, table *Table, log *slog.Logger) *Owner {
	return &Owner{namespace: namespace, table: table, log: log}
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

// Apply makes the table what want says, also when other programs have changed it. When it fails, the table is as
// before. The caller must not change want afterwards.
func (o *Owner) Apply(want State) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if want == nil && o.known && o.last == nil {
		return nil // there was no table, and Watch has told of none since
	}
	err := o.try(func(c *conn) error { return o.applyLocked(c, want) })
	if want == nil && errors.Is(err, o.table.Unsupported) {
		return nil // without nf_tables there is no table to remove
	}
	return err
}

// forgetNoTable makes the next Apply look for a table of another program.
func (o *Owner) forgetNoTable() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.known = o.known && o.last != nil
}

func (o *Owner) applyLocked(c *conn, want State) error {
	generation, err := c.generation()
	if err != nil {
		return err
	}
	have, damage := o.last, ""
	if !o.known || generation != o.generation {
		if have, damage, err = c.read(generation); err != nil {
			return err
		}
		if o.known && !(damage == "" && have.equal(o.last, o.table.Sets)) {
			o.log.Warn("another program has changed the table inet " + o.table.Name + " of nftables, and it is repaired")
		}
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
		generation, err := c.generation()
		if err != nil {
			return err
		}
		if have = o.last; !o.known || generation != o.generation {
			have, _, err = c.read(generation)
		}
		return err
	})
	return have, err
}

// Compare says what is not as want has it, and changes nothing.
func (o *Owner) Compare(want State) (differences []string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	err = o.try(func(c *conn) error {
		generation, err := c.generation()
		if err != nil {
			return err
		}
		have, damage, err := c.read(generation)
		if err == nil {
			differences = o.table.differences(have, want, damage)
		}
		return err
	})
	if want == nil && errors.Is(err, o.table.Unsupported) {
		return nil, nil
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
