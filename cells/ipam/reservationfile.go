package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/cells/ipam/allocator"
	"porin.dev/porin/internal/boltfile"
	"porin.dev/porin/internal/fault"
)

// ReservationFile keeps reservations on a disk: an [allocator.ReservationStore]. The file is made with the first one.
type ReservationFile struct {
	path string // "" keeps nothing

	mu sync.Mutex // guards db
	db *bbolt.DB  // nil: there is no file yet
}

// NewReservationFile returns a closed file.
func NewReservationFile(path string) *ReservationFile { return &ReservationFile{path: path} }

var reservationsBucket = []byte("reservations") // token -> savedReservation

var reservationsKind = boltfile.Kind{
	Name: "the reservations",
	Fill: func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(reservationsBucket); return err },
	Check: func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(reservationsBucket)
		if bucket == nil {
			return errors.New("it has no reservations in it")
		}
		return bucket.ForEach(func(token, value []byte) error {
			_, err := parseReservation(token, value)
			return err
		})
	},
	Fault: func(path string, err error) error {
		return fault.Wrap(fault.Unavailable, fmt.Errorf("open the reservations in %s: %w", path, err))
	},
	Damaged: func(path string, err error) error {
		return fault.Wrap(fault.Internal, fmt.Errorf("the reservations in %s are damaged: %w: move the file away to start without them; "+
			"their addresses may be given to others then", path, err))
	},
}

// savedReservation is the form on the disk.
type savedReservation struct {
	Owner   string     `json:"owner"`
	Pool    string     `json:"pool"`
	IPv4    netip.Addr `json:"ipv4,omitzero"`
	IPv6    netip.Addr `json:"ipv6,omitzero"`
	Since   time.Time  `json:"since"`
	Expires time.Time  `json:"expires,omitzero"` // not there: it is permanent
}

func parseReservation(token, value []byte) (allocator.Reservation, error) {
	var s savedReservation
	if err := json.Unmarshal(value, &s); err != nil {
		return allocator.Reservation{}, fmt.Errorf("reservation %q: %w", token, err)
	}
	return allocator.Reservation{
		Owner: allocator.Handle(s.Owner), Pool: s.Pool, Addresses: endpoint.Addresses{IPv4: s.IPv4, IPv6: s.IPv6},
		Token: string(token), Since: s.Since, Expires: s.Expires, Permanent: s.Expires.IsZero(),
	}, nil
}

// open opens the file, or makes it if there is none and make is true.
func (f *ReservationFile) open(make bool) (*bbolt.DB, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db != nil || f.path == "" {
		return f.db, nil
	}
	if _, err := os.Stat(f.path); !make && errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	db, err := reservationsKind.Open(f.path)
	f.db = db
	return db, err
}

// Close implements the end of an agent.
func (f *ReservationFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil {
		return nil
	}
	err := f.db.Close()
	f.db = nil
	return err
}

// Save implements [allocator.ReservationStore]. It removes expired ones, and earlier ones of the owner, which
// has one at a time: the disk was full when they ended.
func (f *ReservationFile) Save(r allocator.Reservation) error {
	value, err := json.Marshal(savedReservation{
		Owner: string(r.Owner), Pool: r.Pool, IPv4: r.Addresses.IPv4, IPv6: r.Addresses.IPv6, Since: r.Since.UTC(), Expires: r.Expires.UTC(),
	})
	if err != nil {
		return err
	}
	db, err := f.open(true)
	if err != nil || db == nil {
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(reservationsBucket)
		return errors.Join(deleteOver(bucket, r), bucket.Put([]byte(r.Token), value))
	})
}

// deleteOver deletes what has ended by the time that a reservation is saved. A later one of the same owner stays: then
// the saved one has ended while it waited for the disk.
func deleteOver(bucket *bbolt.Bucket, saved allocator.Reservation) error {
	var over [][]byte
	err := bucket.ForEach(func(token, value []byte) error {
		r, err := parseReservation(token, value)
		expired, replaced := !r.Permanent && time.Now().After(r.Expires), r.Owner == saved.Owner && !r.Since.After(saved.Since)
		if err == nil && (expired || replaced) {
			over = append(over, token)
		}
		return err
	})
	for _, token := range over {
		err = errors.Join(err, bucket.Delete(token))
	}
	return err
}

// Delete implements [allocator.ReservationStore].
func (f *ReservationFile) Delete(token string) error {
	db, err := f.open(false)
	if err != nil || db == nil {
		return err
	}
	return db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(reservationsBucket).Delete([]byte(token)) })
}

// Restore opens the file, if there is one, and gives its reservations to the allocator. A refused reservation is
// logged, and stays in the file until it is over or released.
func (f *ReservationFile) Restore(a *allocator.Allocator, log *slog.Logger) error {
	db, err := f.open(false)
	if err != nil || db == nil {
		return err
	}
	return db.View(func(tx *bbolt.Tx) error {
		return tx.Bucket(reservationsBucket).ForEach(func(token, value []byte) error {
			r, err := parseReservation(token, value)
			if err != nil {
				return err
			}
			if err := a.RestoreReservation(r); err != nil {
				log.Error("a reservation could not be restored", "owner", r.Owner, "ip", r.Addresses.List(), "error", err)
			}
			return nil
		})
	})
}
