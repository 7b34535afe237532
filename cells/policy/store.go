package policy

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/policy/manifest"
	"porin.dev/porin/cells/policy/model"
	"porin.dev/porin/internal/boltfile"
	"porin.dev/porin/internal/fault"
)

// store keeps the manifests of policies on a disk. The file is made with the first one.
type store struct {
	path string    // "" keeps nothing
	db   *bbolt.DB // nil: there is no file yet
	key  []byte    // of [engine.Engine.SetLayer7Key]; it is kept with the policies
}

var (
	policiesBucket = []byte("policies-v1")   // the policy's ID as text -> its manifest
	objectsBucket  = []byte("kubernetes-v1") // the same, of policies of the Kubernetes API; made with the first one
	keysBucket     = []byte("keys-v1")
	resolvedBucket = []byte("references-v1")  // a reference -> what it selects; made with the first one
	layer7Key      = []byte("layer7-numbers") // in keysBucket
)

var storeKind = boltfile.Kind{
	Name:  "the policies",
	Fill:  func(tx *bbolt.Tx) error { _, err := tx.CreateBucket(policiesBucket); return err },
	Check: func(tx *bbolt.Tx) error { _, _, _, err := readPolicies(tx); return err },
	Fault: func(path string, err error) error {
		return fault.Wrap(fault.Unavailable, fmt.Errorf("open the policies in %s: %w", path, err))
	},
	Damaged: func(path string, err error) error {
		return fault.Wrap(fault.Internal, fmt.Errorf("the policies in %s cannot be read: %w; the agent does not start without them, and what it has written to the datapath "+
			"stays in force. To go on, restore the file; or move it away, start the agent, which then has no policies, and apply them again", path, err))
	},
}

func readPolicies(tx *bbolt.Tx) (files []manifest.Manifest, objects []object, resolved map[model.Reference]model.Resolution, err error) {
	bucket := tx.Bucket(policiesBucket)
	if bucket == nil {
		return nil, nil, nil, errors.New("it has no policies in it")
	}
	another := func(key []byte) error { return fmt.Errorf("%s: it is another policy's manifest", key) }
	err = bucket.ForEach(func(key, value []byte) error {
		one, err := manifest.ReadAll(value)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", key, err)
		case len(one) != 1 || one[0].Policy.ID.String() != string(key):
			return another(key)
		}
		files = append(files, one[0])
		return nil
	})
	if bucket = tx.Bucket(objectsBucket); err != nil || bucket == nil {
		return files, nil, nil, err
	}
	err = bucket.ForEach(func(key, value []byte) error {
		o := readObject(value)
		if o.Policy.ID.String() != string(key) {
			return another(key)
		}
		objects = append(objects, o)
		return nil
	})
	if bucket = tx.Bucket(resolvedBucket); err != nil || bucket == nil {
		return files, objects, nil, err
	}
	resolved = map[model.Reference]model.Resolution{}
	err = bucket.ForEach(func(key, value []byte) error {
		var reference model.Reference
		var to model.Resolution
		if err := errors.Join(json.Unmarshal(key, &reference), json.Unmarshal(value, &to)); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		resolved[reference] = to
		return nil
	})
	return files, objects, resolved, err
}

// open returns what the file has, if there is one. From then on the store has a key.
func (s *store) open() (files []manifest.Manifest, objects []object, resolved map[model.Reference]model.Resolution, err error) {
	s.key = make([]byte, sha256.Size)
	if _, err := rand.Read(s.key); err != nil {
		return nil, nil, nil, fmt.Errorf("make a key for the numbers of layer 7 rules: %w", err)
	}
	if s.path == "" {
		return nil, nil, nil, nil
	}
	if _, err := os.Stat(s.path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil, nil
	}
	if s.db, err = storeKind.Open(s.path); err != nil {
		return nil, nil, nil, err
	}
	if err := s.db.View(func(tx *bbolt.Tx) error { files, objects, resolved, err = readPolicies(tx); return err }); err != nil {
		return nil, nil, nil, err
	}
	if err := s.db.Update(s.shareKey); err != nil {
		return nil, nil, nil, fault.Wrap(fault.Unavailable, fmt.Errorf("write the key for the numbers of layer 7 rules to %s: %w", s.path, err))
	}
	return files, objects, resolved, nil
}

// shareKey reads the file's key, or writes the store's into a file without one.
func (s *store) shareKey(tx *bbolt.Tx) error {
	bucket, err := tx.CreateBucketIfNotExists(keysBucket)
	if err != nil {
		return err
	}
	if key := bucket.Get(layer7Key); len(key) > 0 {
		s.key = bytes.Clone(key)
		return nil
	}
	return bucket.Put(layer7Key, s.key)
}

func (s *store) close() error {
	if s.db == nil {
		return nil
	}
	err := s.db.Close()
	s.db = nil
	return err
}

// resolve writes what a reference of a policy on the disk selects, or with nil removes it.
func (s *store) resolve(reference model.Reference, to *model.Resolution) error {
	if s.db == nil {
		return nil // there is no policy
	}
	key, keyErr := json.Marshal(reference)
	value, err := json.Marshal(to)
	if err := errors.Join(keyErr, err); err != nil {
		return err
	}
	return s.db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucketIfNotExists(resolvedBucket)
		if err != nil {
			return err
		}
		if to == nil {
			return bucket.Delete(key)
		}
		return bucket.Put(key, value)
	})
}

// change writes all or nothing to one of the buckets of policies. When it returns nil, all is on the disk.
func (s *store) change(name []byte, set []manifest.Manifest, remove []model.PolicyID) (err error) {
	if s.path == "" {
		return nil
	}
	if s.db == nil {
		if s.db, err = storeKind.Open(s.path); err != nil {
			return err
		}
	}
	err = s.db.Update(func(tx *bbolt.Tx) error {
		if tx.Bucket(keysBucket) == nil {
			if err := s.shareKey(tx); err != nil {
				return err
			}
		}
		bucket, err := tx.CreateBucketIfNotExists(name)
		if err != nil {
			return err
		}
		for _, m := range set {
			if err := bucket.Put([]byte(m.Policy.ID.String()), m.JSON); err != nil {
				return err
			}
		}
		for _, id := range remove {
			if err := bucket.Delete([]byte(id.String())); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fault.Wrap(fault.Unavailable, fmt.Errorf("write the policies to %s: %w", s.path, err))
	}
	return nil
}
