package names

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/netip"
	"os"
	"slices"
	"time"

	"porin.dev/porin/cells/policy/dnsname"
	"porin.dev/porin/internal/diskfile"
	"porin.dev/porin/internal/fault"
)

const (
	fileFormat  = "porin-names"
	fileVersion = 1
	maxFile     = 64 << 20
)

// ErrDamaged is returned for a file that is not as Save has written it.
var ErrDamaged = fault.New(fault.Internal, "the file of DNS names is damaged")

// header is the first line of the file. Each of the others is a Lookup.
type header struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	SHA256  string `json:"sha256"` // of what follows the line
}

// Lookup is what an endpoint knows of a name.
type Lookup struct {
	Endpoint  uint16                   `json:"endpoint"`
	Name      string                   `json:"name"`
	Addresses map[netip.Addr]time.Time `json:"addresses"` // and when their TTL ends
}

// List returns everything that is known, sorted by endpoint and name.
func (n *Names) List() []Lookup {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list()
}

func (n *Names) list() []Lookup {
	all := make([]Lookup, 0, len(n.names))
	for _, e := range n.endpoints {
		for text, l := range e.names {
			addresses := make(map[netip.Addr]time.Time, len(l.leases))
			for addr, one := range l.leases {
				addresses[addr] = one.expires
			}
			all = append(all, Lookup{e.id, text, addresses})
		}
	}
	slices.SortFunc(all, func(a, b Lookup) int {
		return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// Save writes everything to a file, as a whole or not at all, if it has changed since it was saved last. When it is
// more than a file may have, it writes what there is room for and returns an error. Two calls must not run at the same
// time.
func (n *Names) Save(path string) error {
	n.mu.Lock()
	if !n.unsaved {
		n.mu.Unlock()
		return nil
	}
	n.unsaved = false
	all := n.list()
	n.mu.Unlock()
	text, left, err := encode(all, maxFile)
	if err == nil {
		err = diskfile.Replace(path, text)
	}
	if err != nil {
		n.mu.Lock()
		n.unsaved = true
		n.mu.Unlock()
		return fmt.Errorf("save DNS names to %s: %w", path, err)
	}
	if left > 0 {
		return fmt.Errorf("save DNS names to %s: %d of %d names are more than %d bytes", path, left, len(all), maxFile)
	}
	return nil
}

// encode returns the text of a file of at most that size, and how many lookups have no room in it.
func encode(all []Lookup, size int) (text []byte, left int, err error) {
	const headerRoom = 256
	var body bytes.Buffer
	for i, l := range all {
		line, err := json.Marshal(l)
		if err != nil {
			return nil, 0, err
		}
		if headerRoom+body.Len()+len(line)+1 > size {
			left = len(all) - i
			break
		}
		body.Write(line)
		body.WriteByte('\n')
	}
	first, err := json.Marshal(header{fileFormat, fileVersion, checksum(body.Bytes())})
	if err != nil {
		return nil, 0, err
	}
	return slices.Concat(first, []byte{'\n'}, body.Bytes()), left, nil
}

func checksum(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// Load adds what a file has for the endpoints for which keep returns true: an ID may be another endpoint's by now. An
// address that has expired meanwhile stays until Expire has asked whether it is in use. There may be no file. If the
// file cannot be used, Load adds nothing and returns [ErrDamaged].
func (n *Names) Load(path string, keep func(endpoint uint16) bool) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all []Lookup
	if err == nil {
		all, err = decode(text)
	}
	if err != nil {
		return fmt.Errorf("load DNS names from %s: %w", path, err)
	}
	for _, l := range all {
		if keep(l.Endpoint) {
			n.restore(l)
		}
	}
	return nil
}

func decode(text []byte) ([]Lookup, error) {
	first, body, _ := bytes.Cut(text, []byte{'\n'})
	var h header
	if err := json.Unmarshal(first, &h); err != nil || h != (header{fileFormat, fileVersion, checksum(body)}) {
		return nil, fmt.Errorf("%w: the first line is not of version %d, or the checksum is another", ErrDamaged, fileVersion)
	}
	var all []Lookup
	decoder := json.NewDecoder(bytes.NewReader(body))
	for {
		var l Lookup
		err := decoder.Decode(&l)
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		all = append(all, l)
	}
}

// restore adds addresses that were learned before, with the times at which they expire.
func (n *Names) restore(l Lookup) {
	now := time.Now()
	addresses := make([]dnsname.Address, 0, len(l.Addresses))
	for addr, expires := range l.Addresses {
		addresses = append(addresses, dnsname.Address{Addr: addr, TTL: expires.Sub(now)})
	}
	slices.SortFunc(addresses, func(a, b dnsname.Address) int { return cmp.Or(cmp.Compare(a.TTL, b.TTL), a.Addr.Compare(b.Addr)) })
	n.learn(l.Endpoint, l.Name, addresses, math.MinInt64)
}
