package offline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/internal/diskfile"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/flock"
)

const (
	journalFormat  = "porin-names-journal"
	journalVersion = 1
	damagedSuffix  = ".damaged"
	lockSuffix     = ".lock"
	// slack is added to the time until which an address is valid, so that a name which is asked for all the time is not written each time.
	slack = 30 * time.Second
)

var (
	// ErrFull is returned when there is no room for more addresses.
	ErrFull = fault.New(fault.Exhausted, "there is no room for more addresses of names while no agent runs")
	// ErrLocked is returned for a journal that another process has open.
	ErrLocked = fault.New(fault.Conflict, "another process has the journal of names open")
)

// Limits is how much a journal may have.
type Limits struct {
	Name     int   // addresses of a name of an endpoint
	Endpoint int   // addresses of an endpoint
	All      int   // addresses of all endpoints
	File     int64 // bytes of the file
}

// DefaultLimits are those of an agent, as far as it has the same ones.
func DefaultLimits() Limits {
	c := names.DefaultConfig()
	return Limits{Name: c.NameLimit, Endpoint: c.EndpointLimit, All: 16384, File: 16 << 20}
}

// Journal is a file of what was learned while no agent was there. Records are appended, each in a line with its checksum: one that is not complete, as who wrote
// it was killed, is not read. Its methods may be called concurrently.
type Journal struct {
	path   string
	limits Limits
	lock   *os.File

	mu        sync.Mutex // guards the fields below
	file      *os.File
	size      int64
	sequence  uint64
	records   map[recordKey]*record
	endpoints map[uint16]int // addresses of each
	all       int            // addresses
}

type recordKey struct {
	endpoint uint16
	name     string
}

// record is what an endpoint was told of a name.
type record struct {
	sequence  uint64                   // when something was added last
	addresses map[netip.Addr]time.Time // and when they expire
}

// header is the first line of the file. Each of the others is a line.
type header struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Sequence uint64 `json:"sequence"` // of all lines before the file was written anew
}

type line struct {
	Sequence uint64 `json:"sequence"`
	names.Lookup
}

// OpenJournal reads a journal, or begins one: it is for one process at a time. A file that is none of a journal is renamed.
func OpenJournal(path string, limits Limits, log *slog.Logger) (_ *Journal, err error) {
	lock, err := os.OpenFile(path+lockSuffix, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the journal of names: %w", err)
	}
	j := &Journal{path: path, limits: limits, lock: lock, records: map[recordKey]*record{}, endpoints: map[uint16]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open the journal of names: %w", err), lock.Close())
		}
	}()
	if err := flock.Try(lock); err != nil {
		if errors.Is(err, flock.ErrLocked) {
			err = ErrLocked
		}
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && !j.read(text) {
		log.Warn("the journal of names is not one that this version can read: it is kept under another name", "path", path+damagedSuffix)
		if err := os.Rename(path, path+damagedSuffix); err != nil {
			return nil, err
		}
	}
	return j, j.rewrite()
}

// Close ends the use of the journal. What it has stays.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return errors.Join(j.file.Close(), j.lock.Close())
}

// read adds what a file has. It reports whether that is a journal.
func (j *Journal) read(text []byte) bool {
	first, rest, _ := bytes.Cut(text, []byte{'\n'})
	var h header
	if !decode(first, &h) || h.Format != journalFormat || h.Version != journalVersion {
		return len(text) == 0
	}
	j.sequence = h.Sequence
	for text := range bytes.Lines(rest) {
		var l line
		if decode(text, &l) {
			j.sequence = max(j.sequence, l.Sequence)
			j.add(recordKey{l.Endpoint, l.Name}, l.Sequence, l.Addresses)
		}
	}
	return true
}

// encode returns a line with its checksum.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return fmt.Appendf(nil, "%08x %s\n", crc32.ChecksumIEEE(text), text), nil
}

func decode(text []byte, v any) bool {
	sum, text, ok := bytes.Cut(bytes.TrimSuffix(text, []byte{'\n'}), []byte{' '})
	return ok && string(sum) == fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) && json.Unmarshal(text, v) == nil
}

// Add notes until when addresses are those of a name that an endpoint has asked for. When it returns, they outlive the process. Names that no rule selects, which are for
// policies to come, have half of the room: they leave the other half to those that are needed.
func (j *Journal) Add(endpoint uint16, name string, addresses map[netip.Addr]time.Time, needed bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := recordKey{endpoint, name}
	longer := map[netip.Addr]time.Time{}
	added := 0
	for addr, expires := range addresses {
		known, ok := j.expires(key, addr)
		if !ok {
			added++
		}
		if !ok || expires.After(known) {
			longer[addr] = expires.Add(slack)
		}
	}
	if len(longer) == 0 {
		return nil
	}
	if !j.makeRoom(key, added, addresses, needed) {
		return ErrFull
	}
	l := line{Sequence: j.sequence + 1, Lookup: names.Lookup{Endpoint: endpoint, Name: name, Addresses: longer}}
	text, err := encode(l)
	if err != nil {
		return err
	}
	if j.size+int64(len(text)) > j.limits.File {
		if err := j.rewrite(); err != nil {
			return err
		}
	}
	if j.size+int64(len(text)) > j.limits.File {
		return ErrFull
	}
	if n, err := j.file.Write(text); err != nil {
		if n > 0 {
			err = errors.Join(err, j.file.Truncate(j.size))
		}
		return fmt.Errorf("write to the journal of names: %w", err)
	}
	j.size += int64(len(text))
	j.sequence = l.Sequence
	j.add(key, l.Sequence, longer)
	return nil
}

func (j *Journal) expires(key recordKey, addr netip.Addr) (time.Time, bool) {
	r := j.records[key]
	if r == nil {
		return time.Time{}, false
	}
	expires, ok := r.addresses[addr]
	return expires, ok
}

// makeRoom drops expired addresses if more ones need that. Those of the answer at hand stay.
func (j *Journal) makeRoom(key recordKey, more int, keep map[netip.Addr]time.Time, needed bool) bool {
	part := 2
	if needed {
		part = 1
	}
	fits := func() bool {
		ofName := 0
		if r := j.records[key]; r != nil {
			ofName = len(r.addresses)
		}
		return ofName+more <= j.limits.Name/part && j.endpoints[key.endpoint]+more <= j.limits.Endpoint/part && j.all+more <= j.limits.All/part
	}
	if fits() {
		return true
	}
	now := time.Now()
	for k, r := range j.records {
		for addr, expires := range r.addresses {
			if _, kept := keep[addr]; expires.Before(now) && (k != key || !kept) {
				j.drop(k, r, addr)
			}
		}
	}
	return fits()
}

func (j *Journal) drop(key recordKey, r *record, addr netip.Addr) {
	delete(r.addresses, addr)
	j.all--
	if j.endpoints[key.endpoint]--; j.endpoints[key.endpoint] == 0 {
		delete(j.endpoints, key.endpoint)
	}
	if len(r.addresses) == 0 {
		delete(j.records, key)
	}
}

func (j *Journal) add(key recordKey, sequence uint64, addresses map[netip.Addr]time.Time) {
	r := j.records[key]
	if r == nil {
		r = &record{addresses: map[netip.Addr]time.Time{}}
		j.records[key] = r
	}
	r.sequence = sequence
	for addr, expires := range addresses {
		if _, ok := r.addresses[addr]; !ok {
			j.all++
			j.endpoints[key.endpoint]++
		}
		r.addresses[addr] = expires
	}
}

// List returns what the journal has, in the order in which it was added. With the mark, [Journal.Remove] removes just that.
func (j *Journal) List() (lookups []names.Lookup, mark uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, key := range j.sorted() {
		lookups = append(lookups, names.Lookup{Endpoint: key.endpoint, Name: key.name, Addresses: maps.Clone(j.records[key].addresses)})
	}
	return lookups, j.sequence
}

func (j *Journal) sorted() []recordKey {
	return slices.SortedFunc(maps.Keys(j.records), func(x, y recordKey) int { return cmp.Compare(j.records[x].sequence, j.records[y].sequence) })
}

// Remove removes what an agent has taken. A name for which more was added since stays.
func (j *Journal) Remove(mark uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	removed := false
	for key, r := range j.records {
		if r.sequence > mark {
			continue
		}
		removed = true
		for addr := range r.addresses {
			j.drop(key, r, addr)
		}
	}
	if !removed {
		return nil
	}
	return j.rewrite()
}

// rewrite replaces the file by one that has nothing twice. It expects the lock.
func (j *Journal) rewrite() error {
	text, err := encode(header{journalFormat, journalVersion, j.sequence})
	if err != nil {
		return err
	}
	for _, key := range j.sorted() {
		r := j.records[key]
		one, err := encode(line{r.sequence, names.Lookup{Endpoint: key.endpoint, Name: key.name, Addresses: r.addresses}})
		if err != nil {
			return err
		}
		text = append(text, one...)
	}
	if err := diskfile.Replace(j.path, text); err != nil {
		return fmt.Errorf("replace the journal of names: %w", err)
	}
	file, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("open the journal of names: %w", err)
	}
	if j.file != nil {
		err = j.file.Close()
	}
	j.file, j.size = file, int64(len(text))
	return err
}
