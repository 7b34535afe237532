package offline

import (
	"net/netip"
	"time"

	"porin.dev/porin/cells/proxy/quota"
)

// usage is how much of the limits is taken.
type usage struct {
	addresses int
	bytes     int // of the lines that they have when the file is written anew, by an estimate from above
}

func (u usage) plus(more usage) usage {
	return usage{u.addresses + more.addresses, u.bytes + more.bytes}
}

func (u usage) minus(less usage) usage {
	return usage{u.addresses - less.addresses, u.bytes - less.bytes}
}

// fits reports whether it is within a limit for addresses.
func (u usage) fits(addresses int) bool {
	return u.addresses <= addresses && u.bytes <= addresses*addressRoom
}

// recordBytes is what a name takes in the file, without its addresses.
func recordBytes(name string) int {
	n := 96
	for i := range len(name) {
		switch c := name[i]; {
		case c == '\\' || c == '"':
			n += 2
		case c < ' ' || c > '~' || c == '<' || c == '>' || c == '&':
			n += 6
		default:
			n++
		}
	}
	return n
}

// addressBytes is what an address takes, with its time.
func addressBytes(addr netip.Addr) int {
	if addr.Is4() {
		return 60
	}
	return 84
}

// expiry says when it is worth looking for what has expired: who asks for what there is no room for must not have all records be looked at each time.
type expiry struct {
	first time.Time // nothing expires before; zero: not known
	next  time.Time // no look before: the last one has found little
}

// sweepPause is the time after a look at all records that has found little to drop.
const sweepPause = time.Second

// makeRoom drops expired addresses if more ones need that. Those of the answer at hand stay.
func (j *Journal) makeRoom(key recordKey, more usage, keep map[netip.Addr]time.Time, needed bool) bool {
	if j.hasRoom(key, more, needed) {
		return true
	}
	now := time.Now()
	if now.Before(j.expiry.first) || now.Before(j.expiry.next) {
		return false
	}
	j.dropExpired(now, func(k recordKey, addr netip.Addr) bool {
		_, kept := keep[addr]
		return kept && k == key
	})
	return j.hasRoom(key, more, needed)
}

func (j *Journal) hasRoom(key recordKey, more usage, needed bool) bool {
	divisor := 2
	if needed {
		divisor = 1
	}
	ofName := more.addresses
	if r := j.records[key]; r != nil {
		ofName += len(r.addresses)
	}
	ofEndpoint, all := j.endpoints[key.endpoint].plus(more), j.all.plus(more)
	if ofName > j.limits.Name/divisor || !ofEndpoint.fits(j.limits.Endpoint/divisor) {
		return false
	}
	return all.fits(j.limits.All/divisor) || needed && ofEndpoint.fits(j.limits.Guaranteed) && all.fits(j.limits.All+quota.Endpoints*j.limits.Guaranteed)
}

func (j *Journal) dropExpired(now time.Time, keep func(recordKey, netip.Addr) bool) {
	before := j.all.addresses
	first := now.Add(time.Hour)
	for k, r := range j.records {
		for addr, expires := range r.addresses {
			switch {
			case expires.Before(now) && !keep(k, addr):
				j.drop(k, r, addr)
			case expires.Before(first):
				first = expires
			}
		}
	}
	j.expiry.first = first
	if few := before / 16; before-j.all.addresses <= few {
		j.expiry.next = now.Add(sweepPause)
	}
}

func (j *Journal) drop(key recordKey, r *record, addr netip.Addr) {
	less := usage{1, addressBytes(addr)}
	delete(r.addresses, addr)
	if len(r.addresses) == 0 {
		less.bytes += recordBytes(key.name)
		delete(j.records, key)
	}
	j.all = j.all.minus(less)
	if left := j.endpoints[key.endpoint].minus(less); left.addresses > 0 {
		j.endpoints[key.endpoint] = left
	} else {
		delete(j.endpoints, key.endpoint)
	}
}

func (j *Journal) add(key recordKey, sequence uint64, addresses map[netip.Addr]time.Time) {
	var more usage
	r := j.records[key]
	if r == nil {
		r = &record{addresses: map[netip.Addr]time.Time{}}
		j.records[key] = r
		more.bytes = recordBytes(key.name)
	}
	r.sequence = sequence
	for addr, expires := range addresses {
		if _, ok := r.addresses[addr]; !ok {
			more = more.plus(usage{1, addressBytes(addr)})
		}
		r.addresses[addr] = expires
		if expires.Before(j.expiry.first) {
			j.expiry.first = expires
		}
	}
	j.all = j.all.plus(more)
	j.endpoints[key.endpoint] = j.endpoints[key.endpoint].plus(more)
}
