package embedded

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/watchable"
)

// Store is the file.
type Store struct {
	path    string
	log     *slog.Logger
	changed watchable.Value[struct{}] // set after each change of the file, and when it is closed

	mu sync.Mutex // guards db
	db *bbolt.DB
}

// New returns the store in a folder. It opens nothing before Start.
func New(dir string, log *slog.Logger) *Store {
	path := filepath.Join(dir, "store.db")
	return &Store{path: path, log: log, db: &bbolt.DB{}} // a DB that is closed
}

// Start opens the file, or makes it.
func (s *Store) Start(context.Context) error {
	db, err := storeFile.Open(s.path)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.db = db
	s.mu.Unlock()
	s.log.Info("the cluster's store is open", "store", s.path)
	return nil
}

// Stop waits for calls, closes the file, and ends the watches.
func (s *Store) Stop(context.Context) error {
	err := s.DB().Close()
	s.changed.Set(struct{}{})
	return err
}

// DB returns the open file, for tests that write what no agent writes.
func (s *Store) DB() *bbolt.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db
}

// transact runs a View or an Update of the file.
func (s *Store) transact(run func(func(*bbolt.Tx) error) error, key string, do func(*bbolt.Tx) error) error {
	var refused error
	err := run(func(tx *bbolt.Tx) error { refused = do(tx); return refused })
	if refused != nil {
		return fmt.Errorf("%s: %w", key, refused)
	}
	if err != nil {
		return fmt.Errorf("%s: %w: %s: %w", key, cluster.ErrUnavailable, s.path, err)
	}
	return nil
}

// get returns the value of a key and the revision, which is valid with [cluster.ErrNotFound], too.
func (s *Store) get(key string) (value string, revision uint64, err error) {
	err = s.transact(s.DB().View, key, func(tx *bbolt.Tx) error {
		value, revision = string(tx.Bucket(entriesBucket).Get([]byte(key))), revisionOf(tx)
		if value == "" {
			return cluster.ErrNotFound
		}
		return nil
	})
	return value, revision, err
}

// entry is a record that is not decoded.
type entry struct{ name, value string }

// list returns the records with such keys, as they are at one moment.
func (s *Store) list(db *bbolt.DB, folder, suffix string) (list []entry, err error) {
	err = s.transact(db.View, folder, func(tx *bbolt.Tx) error {
		c := tx.Bucket(entriesBucket).Cursor()
		for key, value := c.Seek([]byte(folder)); bytes.HasPrefix(key, []byte(folder)); key, value = c.Next() {
			list = append(list, entry{strings.TrimSuffix(string(key[len(folder):]), suffix), string(value)})
		}
		return nil
	})
	return list, err
}

// change writes the value of a key, or deletes the key if the value is "", if check accepts the value that is there.
// A key that is gone already is a success.
func (s *Store) change(key, value string, check func(was string) error) error {
	changed := false
	err := s.transact(s.DB().Update, key, func(tx *bbolt.Tx) error {
		entries := tx.Bucket(entriesBucket)
		was := string(entries.Get([]byte(key)))
		if was == "" && value == "" {
			return nil
		}
		err := check(was)
		switch changed = err == nil && was != value; {
		case !changed:
			return err
		case value == "":
			err = entries.Delete([]byte(key))
		default:
			err = entries.Put([]byte(key), []byte(value))
		}
		revision := binary.BigEndian.AppendUint64(nil, revisionOf(tx)+1)
		return cmp.Or(err, tx.Bucket(metaBucket).Put(revisionKey, revision))
	})
	if err == nil && changed {
		s.changed.Set(struct{}{})
	}
	return err
}
