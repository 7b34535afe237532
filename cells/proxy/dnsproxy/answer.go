package dnsproxy

import (
	"bytes"
	"hash/maphash"
	"net/netip"
	"slices"
	"time"

	"porin.dev/porin/cells/policy/dnsname"
)

// maxChain is how many CNAME records are followed. Resolvers follow fewer.
const maxChain = 16

// Answer is what an answer says of the name that an endpoint has asked for.
type Answer struct {
	Endpoint uint16
	Name     string
	Chain    []string // the names that CNAME records lead to, in this order
	// Addresses are Name's, in the order of the records; one may be there twice. A TTL is the least of the address and of
	// the CNAME records that lead to it.
	Addresses []dnsname.Address
}

// matches reports whether a message is the answer to a query whose question ends at end. If the name in the query has
// no capitals, the answer may have some. Otherwise the name must be equal: some resolvers choose capitals at random,
// against forged answers.
func matches(answer, query []byte, end int) bool {
	if len(answer) < end || !bytes.Equal(answer[:2], query[:2]) || word(answer, 2)&(bitResponse|maskOpcode) != bitResponse || word(answer, 4) != 1 {
		return false
	}
	if bytes.Equal(answer[headerSize:end], query[headerSize:end]) {
		return true
	}
	name := end - 4 // the end of the name
	for i, q := range query[headerSize:name] {
		a := answer[headerSize+i]
		if 'A' <= q && q <= 'Z' || a != q && (a < 'A' || a > 'Z' || a+'a'-'A' != q) {
			return false
		}
	}
	return bytes.Equal(answer[name:end], query[name:end])
}

// section is the answer section of a message.
type section struct {
	message []byte
	records []answerRecord // that have addresses or lead to others
	seed    maphash.Seed
}

// answerRecord has a hash of its name, as a long chain through many records with long names would take long otherwise.
type answerRecord struct {
	owner int // where its name is
	hash  uint64
	recordHeader
}

// add adds a record whose name can be read.
func (s *section) add(owner int, h recordHeader) {
	r := answerRecord{owner, 0, h}
	if n := len(s.records); n > 0 && samePointer(s.message, owner, s.records[n-1].owner) {
		r.hash = s.records[n-1].hash
	} else {
		var room [256]byte
		text, _, err := dnsname.AppendText(room[:0], s.message, owner, true)
		if err != nil {
			return
		}
		r.hash = maphash.Bytes(s.seed, text)
	}
	s.records = append(s.records, r)
}

// samePointer reports whether two names are the same pointer.
func samePointer(m []byte, a, b int) bool { return m[a] >= 0xc0 && word(m, a) == word(m, b) }

// readAnswer returns what an answer that matches says. It returns false when the answer section cannot be read; the
// others are not read.
func readAnswer(m []byte, q question) (a Answer, ok bool) {
	a.Name = q.name
	var room [32]answerRecord
	s := section{m, room[:0], maphash.MakeSeed()}
	off := q.end
	for range word(m, 6) {
		behind, err := dnsname.Skip(m, off)
		if err != nil {
			return a, false
		}
		h, ok := readRecordHeader(m, behind)
		if !ok {
			return a, false
		}
		if h.class == classIN && (h.kind == typeCNAME || h.hasAddress()) {
			s.add(off, h)
		}
		off = h.end
	}
	if word(m, 2)&maskCode == 0 {
		s.follow(&a)
	}
	return a, true
}

// follow follows the chain from the name of the question, and collects its addresses.
func (s *section) follow(a *Answer) {
	var nameRoom, ownerRoom [256]byte
	name, lifetime := append(nameRoom[:0], a.Name...), time.Duration(1<<63-1)
	for {
		var alias *answerRecord
		hash := maphash.Bytes(s.seed, name)
		for i := range s.records {
			r := &s.records[i]
			if r.hash != hash {
				continue
			}
			owner, _, err := dnsname.AppendText(ownerRoom[:0], s.message, r.owner, true)
			if err != nil || !bytes.Equal(owner, name) {
				continue
			}
			if r.kind == typeCNAME && alias == nil {
				alias = r
			}
			s.addresses(a, r, min(lifetime, r.lifetime()))
		}
		if alias == nil || len(a.Chain) == maxChain {
			return
		}
		target, end, err := dnsname.AppendText(name[:0], s.message, alias.data, true)
		if err != nil || end != alias.end {
			return
		}
		next := string(target)
		if next == a.Name || slices.Contains(a.Chain, next) {
			return
		}
		a.Chain = append(a.Chain, next)
		name, lifetime = target, min(lifetime, alias.lifetime())
	}
}

// hasAddress reports whether the type is one of those with addresses.
func (h recordHeader) hasAddress() bool {
	return h.kind == typeA || h.kind == typeAAAA || h.kind == typeSVCB || h.kind == typeHTTPS
}

// lifetime returns the TTL. One with the highest bit set means 0 (RFC 2181).
func (h recordHeader) lifetime() time.Duration {
	if h.ttl>>31 != 0 {
		return 0
	}
	return time.Duration(h.ttl) * time.Second
}

// addresses adds the addresses of a record. Data that is not of its type has none.
func (s *section) addresses(a *Answer, r *answerRecord, ttl time.Duration) {
	data := s.message[r.data:r.end]
	switch {
	case r.kind == typeA && len(data) == 4, r.kind == typeAAAA && len(data) == 16:
		a.add(data, ttl)
	case r.kind == typeSVCB || r.kind == typeHTTPS:
		a.addHints(data, ttl)
	}
}

func (a *Answer) add(data []byte, ttl time.Duration) {
	addr, _ := netip.AddrFromSlice(data)
	addr = addr.Unmap() // a connection to a mapped address is one over IPv4
	a.Addresses = append(a.Addresses, dnsname.Address{Addr: addr, TTL: ttl})
}

// addHints adds the addresses in the parameters of a service (RFC 9460). A record that is an alias, with priority 0,
// has none.
func (a *Answer) addHints(data []byte, ttl time.Duration) {
	const ipv4Hint, ipv6Hint = 4, 6
	if len(data) < 2 || word(data, 0) == 0 {
		return
	}
	off, err := dnsname.Skip(data, 2)
	for err == nil && off+4 <= len(data) {
		key, size := word(data, off), int(word(data, off+2))
		off += 4
		if off+size > len(data) {
			return
		}
		value := data[off : off+size]
		off += size
		switch {
		case key == ipv4Hint && size%4 == 0:
			a.addAll(value, 4, ttl)
		case key == ipv6Hint && size%16 == 0:
			a.addAll(value, 16, ttl)
		}
	}
}

func (a *Answer) addAll(value []byte, size int, ttl time.Duration) {
	for one := range slices.Chunk(value, size) {
		a.add(one, ttl)
	}
}
