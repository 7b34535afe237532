package offline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"porin.dev/porin/cells/policy/names"
	"porin.dev/porin/internal/fault"
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

// Limits is how much a journal may have. Where addresses are counted, the lines of their names are, too: for each address there are [addressRoom] bytes.
type Limits struct {
	Name       int   // addresses of a name of an endpoint
	Endpoint   int   // addresses of an endpoint
	All        int   // addresses of all endpoints
	Guaranteed int   // addresses that an endpoint may have when others have taken all: [quota.Endpoints] of them, besides All
	File       int64 // bytes of the file
}

// addressRoom is enough for an address of a name of its own with up to 100 characters.
const addressRoom = 256

// DefaultLimits are those of an agent, as far as it has the same ones. The file is written anew when it is full, with 6 MiB at the most.
func DefaultLimits() Limits {
	c := names.DefaultConfig()
	return Limits{Name: c.NameLimit, Endpoint: c.EndpointLimit, All: 16384, Guaranteed: 32, File: 8 << 20}
}

// Journal is a file of what was learned while no agent was there. Records are appended, each in a line with its checksum: one that is not complete, as who wrote
// it was killed, is not read. Its methods may be called concurrently.
type Journal struct {
	path   string
	limits Limits
	lock   *os.File

	mu         sync.Mutex // guards the fields below
	file       *os.File
	size       int64
	headerRead bool // the header was read
	endsInLine bool // the file ends within a line
	sequence   uint64
	records    map[recordKey]*record
	endpoints  map[uint16]usage // of each
	all        usage
	expiry     expiry
	rewritten  attempt
	closed     bool
}

// attempt is the last one to write the file anew that has failed.
type attempt struct {
	err  error
	next time.Time // no other one before
}

// rewritePause is the time after an attempt to write the file anew that has failed, as when the disk is full.
const rewritePause = time.Second

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

// encode returns a line with its checksum.
func encode(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return appendSummed(nil, text), nil
}

func appendSummed(to, text []byte) []byte {
	to = fmt.Appendf(to, "%08x ", crc32.ChecksumIEEE(text))
	return append(append(to, text...), '\n')
}

// append adds what [encode] returns. Queries wait while all lines are written anew, and the package json takes several times as long.
func (l *line) append(to []byte) ([]byte, error) {
	name, err := json.Marshal(l.Name)
	if err != nil {
		return nil, err
	}
	text := make([]byte, 0, 512)
	text = fmt.Appendf(text, `{"sequence":%d,"endpoint":%d,"name":%s,"addresses":{`, l.Sequence, l.Endpoint, name)
	first := true
	for addr, expires := range l.Addresses {
		if !first {
			text = append(text, ',')
		}
		first = false
		text = addr.AppendTo(append(text, '"'))
		text = expires.AppendFormat(append(text, `":"`...), time.RFC3339Nano)
		text = append(text, '"')
	}
	return appendSummed(to, append(text, "}}"...)), nil
}

func decode(text []byte, v any) bool {
	sum, text, ok := bytes.Cut(bytes.TrimSuffix(text, []byte{'\n'}), []byte{' '})
	return ok && string(sum) == fmt.Sprintf("%08x", crc32.ChecksumIEEE(text)) && json.Unmarshal(text, v) == nil
}

// Add records until when addresses belong to a name for an endpoint. When it returns nil, they survive the process (not the boot). needed is false for a name that no rule
// selects: such names may use half of each limit. It returns [ErrFull] when a limit is reached, else the error of the file; then nothing was recorded.
func (j *Journal) Add(endpoint uint16, name string, addresses map[netip.Addr]time.Time, needed bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	key := recordKey{endpoint, name}
	longer := map[netip.Addr]time.Time{}
	var more usage
	for addr, expires := range addresses {
		known, ok := j.expires(key, addr)
		if !ok {
			more = more.plus(usage{1, addressBytes(addr)})
		}
		if !ok || expires.After(known) {
			longer[addr] = expires.Add(slack)
		}
	}
	if len(longer) == 0 {
		return nil
	}
	if j.records[key] == nil {
		more.bytes += recordBytes(name)
	}
	if !j.makeRoom(key, more, addresses, needed) {
		return ErrFull
	}
	l := line{Sequence: j.sequence + 1, Lookup: names.Lookup{Endpoint: endpoint, Name: name, Addresses: longer}}
	text, err := l.append(nil)
	if err != nil {
		return err
	}
	if err := j.makeFileRoom(int64(len(text))); err != nil {
		return err
	}
	if err := j.write(text); err != nil {
		return fmt.Errorf("write to the journal of names: %w", err)
	}
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

// List returns what the journal has, in the order in which it was added. With the mark, [Journal.Remove] removes just that.
func (j *Journal) List() (lookups []names.Lookup, mark uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.sorted() {
		lookups = append(lookups, names.Lookup{Endpoint: r.endpoint, Name: r.name, Addresses: maps.Clone(r.addresses)})
	}
	return lookups, j.sequence
}

// keyed is a record with its key.
type keyed struct {
	recordKey
	*record
}

// sorted returns the records in the order in which something was added to them last.
func (j *Journal) sorted() []keyed {
	all := make([]keyed, 0, len(j.records))
	for key, r := range j.records {
		all = append(all, keyed{key, r})
	}
	slices.SortFunc(all, func(x, y keyed) int { return cmp.Compare(x.sequence, y.sequence) })
	return all
}

// Remove removes what an agent has imported. A name for which more was added since stays. After [Journal.Close] it does nothing, as another process may have the file.
func (j *Journal) Remove(mark uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return fmt.Errorf("remove what was imported: %w", os.ErrClosed)
	}
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
