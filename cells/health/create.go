package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/diskfile"
	"porin.dev/porin/internal/fault"
)

// recordTimeout bounds how long a node without the file of its addresses waits for its record.
const recordTimeout = 10 * time.Second

// AddressKeeper reserves addresses for the endpoint that is to come.
type AddressKeeper interface {
	// Keep reserves the endpoint's addresses with the token of its spec. They must be this node's, and free.
	Keep(ep endpoint.Endpoint) error
	// LacksFamily reports whether the endpoint could have an address of a family that it has none of.
	LacksFamily(ep endpoint.Endpoint) bool
}

// RecordedAddresses are the addresses that the node's record has for its health endpoint.
type RecordedAddresses interface {
	// RecordedHealth returns them when the record was read: none when there is no record, or it has none. It returns an
	// error when ctx ends before.
	RecordedHealth(ctx context.Context) ([]netip.Addr, error)
}

// kept is what the node's disk has of its health endpoint.
type kept struct {
	endpoint.Addresses
	Pool string `json:"pool,omitempty"`
}

// load returns what was kept; the zero value for nothing.
func (k *Keeper) load() (before kept, err error) {
	err = diskfile.ReadJSON(k.file, &before)
	if errors.Is(err, fs.ErrNotExist) { // as for the path ""
		return kept{}, nil
	}
	if err == nil {
		err = endpoint.ValidateAddresses(before.Addresses)
	}
	if err != nil {
		return kept{}, fmt.Errorf("read the addresses of the health endpoint in %s: %w", k.file, err)
	}
	return before, nil
}

// remember keeps the addresses on the disk, if it has others.
func (k *Keeper) remember(ep endpoint.Endpoint) {
	now := kept{ep.Addresses, ep.Pool}
	if before, err := k.load(); k.file == "" || err == nil && before == now {
		return
	}
	err := os.MkdirAll(filepath.Dir(k.file), 0o750)
	if err == nil {
		err = diskfile.ReplaceJSON(k.file, now)
	}
	if err != nil {
		k.log.Warn("the next boot gives the health endpoint other addresses", "error", err)
	}
}

// create makes the endpoint, with the previous addresses if they have no other owner.
func (k *Keeper) create(ctx context.Context) (endpoint.Endpoint, error) {
	var refused []error
	if k.kept {
		ep, err := k.createWith(ctx, endpoint.Addresses{}, keptToken)
		if err == nil || !isTaken(err) {
			return ep, err
		}
		k.kept = false // the reservation is over
	}
	for _, addresses := range k.wanted(ctx) {
		ep, err := k.createWith(ctx, addresses, "")
		if err == nil {
			if len(refused) > 0 {
				k.updateStatus(func(s *Status) { s.NewAddress++ })
				k.log.Warn("health endpoint has other addresses than before", "endpoint", ep.ID, "addresses", ep.Addresses.List(), "error", errors.Join(refused...))
			}
			return ep, nil
		}
		if addresses == (endpoint.Addresses{}) || !isTaken(err) {
			return ep, err
		}
		refused = append(refused, err)
	}
	return endpoint.Endpoint{}, errors.Join(refused...) // never: the last one is any address
}

// wanted are the addresses to ask for: from the disk, or else from the node's record, and at last any. Addresses that
// it cannot get are given back as a pair: none of them is kept.
func (k *Keeper) wanted(ctx context.Context) []endpoint.Addresses {
	before, err := k.load()
	if err != nil {
		k.log.Warn("addresses of the health endpoint are not known", "error", err)
	}
	if before.Addresses == (endpoint.Addresses{}) {
		before.Addresses = k.published(ctx)
	}
	if before.Addresses == (endpoint.Addresses{}) {
		return []endpoint.Addresses{{}}
	}
	return []endpoint.Addresses{before.Addresses, {}}
}

// published are the addresses in the node's record: for a node that is installed again.
func (k *Keeper) published(ctx context.Context) (addresses endpoint.Addresses) {
	if k.recorded == nil {
		return addresses
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	recorded, err := k.recorded.RecordedHealth(ctx)
	if err != nil {
		k.log.Warn("addresses that the node's record may have for the health endpoint are not known", "error", err)
	}
	for _, addr := range recorded {
		if addr.Is4() {
			addresses.IPv4 = addr
		} else {
			addresses.IPv6 = addr
		}
	}
	return addresses
}

// isTaken reports whether the addresses cannot be had, now or later.
func isTaken(err error) bool {
	kind := fault.KindOf(err)
	return kind == fault.Conflict || kind == fault.Invalid
}

func (k *Keeper) createWith(ctx context.Context, addresses endpoint.Addresses, token string) (_ endpoint.Endpoint, err error) {
	file, err := k.namespace.make()
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.namespace.remove())
		}
	}()
	namespace, err := endpoint.OpenNamespace(file)
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	spec := k.spec()
	spec.Requested, spec.Reservation = addresses, token
	ep, err := k.manager.Create(ctx, spec, namespace)
	if err != nil {
		return endpoint.Endpoint{}, err
	}
	k.remember(ep)
	return ep, nil
}
