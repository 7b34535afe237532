package cache

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"time"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/boltfile"
)

// form is the form of the file's content.
const form = 2

// maxBytes bounds the file: more than what 5,000 nodes with 110 pods each need.
const maxBytes = 1 << 30

// header is the part of the file that is about all of it.
type header struct {
	Form      int       `json:"form"`
	Origin    Origin    `json:"origin"`
	UpdatedAt time.Time `json:"updatedAt"`
	// Networks and Endpoints are the marks of the watches; "" if the file may lack some of their records.
	Networks  cluster.Mark `json:"networks,omitempty"`
	Endpoints cluster.Mark `json:"endpoints,omitempty"`
}

var (
	headerKey       = []byte("header")
	namespacesKey   = []byte("namespaces") // of headerBucket
	networksBucket  = []byte("networks")
	endpointsBucket = []byte("endpoints")
	headerBucket    = []byte("cache")

	errDamaged = errors.New("it is damaged")
)

var kind = boltfile.Kind{
	Name: "the cache of other nodes", Fill: fill, Check: func(tx *bbolt.Tx) error { _, err := readHeader(tx); return err },
	Fault:   func(path string, err error) error { return fmt.Errorf("open %s: %w", path, err) },
	Damaged: func(path string, err error) error { return fmt.Errorf("read %s: %w: %w", path, errDamaged, err) },
}

func fill(tx *bbolt.Tx) error {
	for _, name := range [][]byte{networksBucket, endpointsBucket, headerBucket} {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return err
		}
	}
	return writeHeader(tx, header{Form: form})
}

func readHeader(tx *bbolt.Tx) (h header, err error) {
	if tx.Bucket(networksBucket) == nil || tx.Bucket(endpointsBucket) == nil || tx.Bucket(headerBucket) == nil {
		return h, errors.New("a part of it is not there")
	}
	if err := decode(tx.Bucket(headerBucket).Get(headerKey), &h); err != nil {
		return h, err
	}
	if h.Form != form {
		return h, fmt.Errorf("it has form %d, and this agent knows %d", h.Form, form)
	}
	return h, nil
}

func writeHeader(tx *bbolt.Tx, h header) error {
	value, err := encode(h)
	if err != nil {
		return err
	}
	return tx.Bucket(headerBucket).Put(headerKey, value)
}

func writeNamespaces(tx *bbolt.Tx, labels map[string]map[string]string) error {
	value, err := encode(labels)
	if err != nil {
		return err
	}
	return tx.Bucket(headerBucket).Put(namespacesKey, value)
}

// encode returns the value's JSON behind a checksum: bbolt has none.
func encode(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), crc32.ChecksumIEEE(text)), text...), nil
}

func decode(from []byte, value any) error {
	if len(from) < 4 || binary.BigEndian.Uint32(from) != crc32.ChecksumIEEE(from[4:]) {
		return fmt.Errorf("%w: a value has another checksum", errDamaged)
	}
	return json.Unmarshal(from[4:], value)
}

// open returns the file, and makes it if it is not there, or is of no use.
func (c *Cache) open() (*bbolt.DB, error) {
	if c.db != nil {
		return c.db, nil
	}
	err := checkSize(c.path)
	if err == nil {
		c.db, err = kind.Open(c.path)
	}
	if errors.Is(err, errDamaged) {
		c.db, err = c.recreate(err)
	}
	return c.db, err
}

func checkSize(path string) error {
	if info, err := os.Stat(path); err == nil && info.Size() > maxBytes {
		return fmt.Errorf("%w: it has %d bytes, more than %d", errDamaged, info.Size(), maxBytes)
	}
	return nil
}

// recreate replaces the file by an empty one.
func (c *Cache) recreate(reason error) (*bbolt.DB, error) {
	c.log.Warn("what was known of other nodes cannot be read; it is collected again when the store answers", "error", reason)
	c.lacking = c.lacking || c.used
	if err := c.close(); err != nil {
		return nil, err
	}
	if err := os.Remove(c.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return kind.Open(c.path)
}

func (c *Cache) close() error {
	if c.db == nil {
		return nil
	}
	db := c.db
	c.db = nil
	return db.Close()
}
