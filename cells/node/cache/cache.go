package cache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"sync"
	"time"

	"go.etcd.io/bbolt"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/task"
)

// interval is the time between two writes.
const interval = 5 * time.Second

// Origin is where records come from. Those of another origin are of no use.
type Origin struct {
	Store   string `json:"store"`   // see [cluster.Position]
	Cluster string `json:"cluster"` // see [cluster.ClusterInfo]
	// Recovery is the last one of the store, see [cluster.ClusterInfo].
	Recovery string `json:"recovery,omitempty"`
}

// Cache is the file. A nil Cache keeps nothing. Its methods may be called concurrently.
type Cache struct {
	path string
	log  *slog.Logger
	task *task.Task

	mu      sync.Mutex      // guards the fields below
	origin  *Origin         // nil until it is known: nothing is written before
	origins map[Origin]bool // that were known since the start
	pending pending

	file sync.Mutex // guards the fields below, and is held while the file is read or written
	db   *bbolt.DB
	used bool // a watch has got its records, or they were written
	// lacking says that the file was emptied after that: watches do not tell of all records again, so it has no marks in
	// this life of the agent.
	lacking bool
}

// pending is what the file does not have yet.
type pending struct {
	networks  changes[cluster.NodeNetwork]
	endpoints changes[cluster.EndpointGroup]
	// namespaces are the labels of all namespaces; nil when they are as in the file.
	namespaces map[string]map[string]string
	updatedAt  time.Time // zero when there is nothing
}

// New returns the cache in a folder. It opens nothing before something is noted or asked for.
func New(dir string, log *slog.Logger) *Cache {
	c := &Cache{path: filepath.Join(dir, "peers.db"), log: log, origins: map[Origin]bool{}}
	c.pending.networks.kind, c.pending.endpoints.kind = cluster.NetworkKind, cluster.EndpointGroupKind
	c.task = task.Every(log, task.Round{Name: "node-cache-peers", Run: c.round, Retry: interval, MaxRetry: time.Minute})
	return c
}

// Task writes what was noted.
func (c *Cache) Task() *task.Task { return c.task }

// SetOrigin sets the origin of the recorded data. Data of another origin are removed from the file, unless they were
// recorded since the start: then a watch that goes on has told of them.
func (c *Cache) SetOrigin(o Origin) {
	if c == nil {
		return
	}
	c.mu.Lock()
	c.origin, c.origins[o] = &o, true
	c.mu.Unlock()
	c.task.Trigger()
}

// RecordNetworks records what a watch has told.
func (c *Cache) RecordNetworks(change cluster.Change[cluster.NodeNetwork]) {
	if c != nil {
		c.record(func(p *pending) error {
			return p.networks.record(change)
		})
	}
}

// RecordEndpoints records what a watch has told.
func (c *Cache) RecordEndpoints(change cluster.Change[cluster.EndpointGroup]) {
	if c != nil {
		c.record(func(p *pending) error { return p.endpoints.record(change) })
	}
}

// RecordNamespaces records the labels of all namespaces, where groups do not have them. The caller does not change them
// any more.
func (c *Cache) RecordNamespaces(labels map[string]map[string]string) {
	if c != nil {
		c.record(func(p *pending) error {
			p.namespaces = labels
			return nil
		})
	}
}

func (c *Cache) record(add func(*pending) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := add(&c.pending); err != nil {
		c.log.Warn("a record of another node is not kept for a start without the store", "error", err)
	}
	c.pending.updatedAt = time.Now()
	c.task.Trigger()
}

// Networks returns the records that there were when the store has told of something last. It is zero when there are
// none.
func (c *Cache) Networks() (all []cluster.NodeNetwork, of Origin, asOf time.Time) {
	h := c.read(func(tx *bbolt.Tx) (err error) {
		all, err = readAll(tx.Bucket(networksBucket), cluster.NetworkKind)
		return err
	})
	if h.UpdatedAt.IsZero() {
		return nil, h.Origin, h.UpdatedAt
	}
	return all, h.Origin, h.UpdatedAt
}

// Endpoints returns the groups, and the labels of namespaces, that there were, as Networks does.
func (c *Cache) Endpoints() (all []cluster.EndpointGroup, namespaces map[string]map[string]string, asOf time.Time) {
	h := c.read(func(tx *bbolt.Tx) (err error) {
		if all, err = readAll(tx.Bucket(endpointsBucket), cluster.EndpointGroupKind); err != nil {
			return err
		}
		if text := tx.Bucket(headerBucket).Get(namespacesKey); text != nil {
			err = decode(text, &namespaces)
		}
		return err
	})
	if h.UpdatedAt.IsZero() {
		return nil, nil, h.UpdatedAt
	}
	return all, namespaces, h.UpdatedAt
}

// ResumeNetworks returns what a watch of the networks may go on from. now says where the store's records are from.
func (c *Cache) ResumeNetworks(now func(context.Context) (Origin, error)) cluster.Resume[cluster.NodeNetwork] {
	return resume(c, networksBucket, cluster.NetworkKind, func(h header) cluster.Mark { return h.Networks }, now)
}

// ResumeEndpoints is ResumeNetworks for the groups.
func (c *Cache) ResumeEndpoints(now func(context.Context) (Origin, error)) cluster.Resume[cluster.EndpointGroup] {
	return resume(c, endpointsBucket, cluster.EndpointGroupKind, func(h header) cluster.Mark { return h.Endpoints }, now)
}

// read returns the zero header when there is nothing that can be used.
func (c *Cache) read(do func(*bbolt.Tx) error) (h header) {
	if c == nil {
		return h
	}
	c.file.Lock()
	defer c.file.Unlock()
	db, err := c.open()
	if err == nil {
		err = db.View(func(tx *bbolt.Tx) (err error) {
			if h, err = readHeader(tx); err == nil {
				err = do(tx)
			}
			return err
		})
		if err != nil {
			c.db, err = c.recreate(err)
			h = header{}
		}
	}
	if err != nil {
		c.log.Warn("what was known of other nodes is not used", "error", err)
	}
	return h
}

// round writes what is pending, after a while in which more of it may come.
func (c *Cache) round(ctx context.Context) error {
	c.mu.Lock()
	nothing := c.pending.updatedAt.IsZero() || c.origin == nil
	c.mu.Unlock()
	if nothing {
		return nil
	}
	if err := task.Sleep(ctx, interval); err != nil {
		return err
	}
	return c.write()
}

// Stop is for after the tasks: it writes what is pending, and closes the file.
func (c *Cache) Stop(ctx context.Context) error {
	err := errors.Join(c.task.Stop(ctx), c.write())
	c.file.Lock()
	defer c.file.Unlock()
	return errors.Join(err, c.close())
}

// write writes the recorded data to the file.
func (c *Cache) write() error {
	c.mu.Lock()
	origin := c.origin
	if c.pending.updatedAt.IsZero() || origin == nil {
		c.mu.Unlock()
		return nil
	}
	origins := maps.Clone(c.origins)
	p := pending{c.pending.networks.take(), c.pending.endpoints.take(), c.pending.namespaces, c.pending.updatedAt}
	c.pending.namespaces, c.pending.updatedAt = nil, time.Time{}
	c.mu.Unlock()
	if err := c.put(p, *origin, origins); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		p.networks.add(c.pending.networks)
		p.endpoints.add(c.pending.endpoints)
		if c.pending.namespaces == nil {
			c.pending.namespaces = p.namespaces
		}
		if c.pending.updatedAt.IsZero() {
			c.pending.updatedAt = p.updatedAt
		}
		c.pending.networks, c.pending.endpoints = p.networks, p.endpoints
		return fmt.Errorf("write what is known of other nodes to %s: %w", c.path, err)
	}
	return nil
}

func (c *Cache) put(p pending, origin Origin, origins map[Origin]bool) error {
	c.file.Lock()
	defer c.file.Unlock()
	db, err := c.open()
	if err != nil {
		return err
	}
	h := header{Form: form, Origin: origin, UpdatedAt: p.updatedAt}
	var removed bool
	err = db.Update(func(tx *bbolt.Tx) (err error) {
		if removed, err = removeOthers(tx, origin, origins); err != nil {
			return err
		}
		h.Networks, h.Endpoints, err = clearMarks(tx, p)
		return err
	})
	if err != nil {
		return err
	}
	c.lacking = c.lacking || removed && c.used
	c.used = true
	if c.lacking {
		h.Networks, h.Endpoints = "", ""
	}
	if err := p.networks.write(db, networksBucket); err != nil {
		return err
	}
	if err := p.endpoints.write(db, endpointsBucket); err != nil {
		return err
	}
	if p.namespaces != nil {
		if err := db.Update(func(tx *bbolt.Tx) error { return writeNamespaces(tx, p.namespaces) }); err != nil {
			return err
		}
	}
	if p.endpoints.pages != nil { // a new file counts when the list is complete
		return db.Update(func(tx *bbolt.Tx) error { return writeNetworksMark(tx, h.Networks) })
	}
	return db.Update(func(tx *bbolt.Tx) error { return writeHeader(tx, h) })
}

// clearMarks clears the marks of the kinds that are about to be written: a kill may leave a part of the changes in the
// file. It returns the marks for afterwards.
func clearMarks(tx *bbolt.Tx, p pending) (networks, endpoints cluster.Mark, err error) {
	h, err := readHeader(tx)
	if err != nil {
		return "", "", err
	}
	before := h
	networks, h.Networks = p.networks.nextMark(h.Networks)
	endpoints, h.Endpoints = p.endpoints.nextMark(h.Endpoints)
	if h != before {
		err = writeHeader(tx, h)
	}
	return networks, endpoints, err
}

// writeNetworksMark leaves the rest of the header as it is.
func writeNetworksMark(tx *bbolt.Tx, mark cluster.Mark) error {
	h, err := readHeader(tx)
	if err != nil || h.Networks == mark {
		return err
	}
	h.Networks = mark
	return writeHeader(tx, h)
}

// removeOthers removes what is of none of the origins, and reports whether there was something.
func removeOthers(tx *bbolt.Tx, origin Origin, origins map[Origin]bool) (removed bool, err error) {
	h, err := readHeader(tx)
	if err != nil || origins[h.Origin] {
		return false, err
	}
	for _, name := range [][]byte{networksBucket, endpointsBucket} {
		if err := tx.DeleteBucket(name); err != nil {
			return false, err
		}
	}
	err = errors.Join(fill(tx), tx.Bucket(headerBucket).Delete(namespacesKey), writeHeader(tx, header{Form: form, Origin: origin}))
	return !h.UpdatedAt.IsZero(), err
}
