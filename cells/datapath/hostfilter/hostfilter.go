package hostfilter

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"porin.dev/porin/internal/fault"
)

// ErrUnsupported is returned when the kernel lacks nf_tables, or parts of it.
var ErrUnsupported = fault.New(fault.Unavailable,
	"kernel lacks what egress policies need: nf_tables with inet tables, connection tracking and concatenations of ranges (Linux 5.6, CONFIG_NF_TABLES_INET, CONFIG_NFT_CT)")

// ErrRows is returned for rows that contradict each other or have ports where there are none.
var ErrRows = fault.New(fault.Invalid, "malformed rows")

// Desired is what the table should enforce.
type Desired struct {
	Pods []Pod // those with an egress policy; others are not restricted
	// Enforced are the devices on which a program enforces egress policies: pods' host ends, and the uplinks. What a
	// pod of Pods sends by another device is dropped.
	Enforced []int
}

// Pod is a pod with an egress policy.
type Pod struct {
	Link int   // index of its host end
	Rows []Row // of the class of the node
}

// Row is a verdict. A row with a range of ports takes precedence over one for all ports, and that one over the row
// without a protocol. What no row matches is denied. Ranges of a protocol must not overlap.
type Row struct {
	Protocol    uint8  // IPPROTO_...; 0 stands for all, and has no ports
	First, Last uint16 // destination ports; 0 to 65535 stands for all, also of protocols without ports
	Allow       bool
}

// Filter is the table of one network namespace.
type Filter struct {
	namespace *os.File
	log       *slog.Logger

	mu     sync.Mutex // guards the fields below; held during a transaction
	kernel *kernel    // nil before the first use, and after a failure
	// last is what the table was at that generation of the ruleset, if known. The kernel raises the generation with
	// each transaction of any program.
	last       state
	generation uint32
	known      bool
}

// New returns the filter of the namespace, which must stay open until Close. It touches nothing.
func New(namespace *os.File, log *slog.Logger) *Filter {
	return &Filter{namespace: namespace, log: log}
}

// Close closes the socket. The table stays.
func (f *Filter) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.disconnect()
}

// use runs do with a socket, and keeps the socket unless do fails: then late answers may follow.
func (f *Filter) use(do func(*kernel) error) (err error) {
	if f.kernel == nil {
		if f.kernel, err = connect(f.namespace); err != nil {
			return err
		}
	}
	err = f.kernel.socket.SetDeadline(time.Now().Add(timeout))
	if err == nil {
		err = do(f.kernel)
	}
	if err != nil {
		return errors.Join(err, f.disconnect())
	}
	return nil
}

func (f *Filter) disconnect() (err error) {
	f.known = false
	if f.kernel != nil {
		err = f.kernel.close()
		f.kernel = nil
	}
	return err
}

// attempts is how often Apply tries, when other programs change the ruleset meanwhile.
const attempts = 5

// Apply makes the table what d says, also when other programs have changed it. When it fails, the table is as before. A
// pod that is not in d is not restricted, also when a former agent did so: the first d must have all pods.
func (f *Filter) Apply(d Desired) error {
	want, err := stateOf(d)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if want == nil && f.known && f.last == nil {
		return nil // there was no table, and Watch has told of none since
	}
	for range attempts {
		err = f.use(func(k *kernel) error { return f.apply(k, want) })
		if !errors.Is(err, errChanged) {
			break
		}
	}
	if want == nil && errors.Is(err, ErrUnsupported) {
		return nil // without nf_tables there is no table to remove
	}
	if err != nil {
		return fmt.Errorf("apply the filter for the node itself: %w", err)
	}
	return nil
}

// forgetNoTable has the next Apply look whether somebody else has made a table.
func (f *Filter) forgetNoTable() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known = f.known && f.last != nil
}

// apply expects the lock.
func (f *Filter) apply(k *kernel, want state) error {
	generation, err := k.generation()
	if err != nil {
		return err
	}
	have, intact := f.last, true
	if !f.known || generation != f.generation {
		if have, intact, err = k.read(generation); err != nil {
			return err
		}
		if f.known && !(intact && have.equal(f.last)) {
			f.log.Warn("another program has changed the table inet porin of nftables, and it is repaired")
		}
	}
	if intact && have.equal(want) {
		f.last, f.generation, f.known = want, generation, true
		return nil
	}
	writeErr := k.write(have, want, intact)
	after, err := k.generation()
	switch {
	case writeErr != nil && (err != nil || after == generation):
		return explain("change the table of nftables", writeErr)
	case writeErr != nil:
		return fmt.Errorf("%w: %w", errChanged, writeErr)
	}
	// If another program had a transaction before or after this one, the table has to be read again.
	f.last, f.generation, f.known = want, after, err == nil && after == generation+1
	return nil
}

// Counters are the packets that were dropped since the table was made.
type Counters struct {
	Input   uint64 // from restricted pods to the node
	Forward uint64 // from restricted pods, to devices without the program
}

// Counters reads the table's counters, which are 0 without a table.
func (f *Filter) Counters() (c Counters, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	err = f.use(func(k *kernel) error {
		c, err = k.counters()
		return err
	})
	return c, err
}
