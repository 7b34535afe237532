package multipool

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"porin.dev/porin/cells/cluster"
)

// otherNodes are the nodes that this one has seen in the store. When one is gone that nobody has deleted, the store was
// rolled back. They have a file of their own, as there may be thousands, and they change less often than blocks.
type otherNodes struct {
	checkpoint *checkpoint // has the own node, which is none of them
	store      cluster.Nodes

	byName map[string]cluster.NodeID // of their records
	// doubtful are nodes that a list or a snapshot lacked. It may be late: they are read before they are forgotten. A
	// Deleted event is believed.
	doubtful map[string]bool
	changed  bool // since the file was written
	complete bool // all nodes were told once since this agent began
}

func newOtherNodes(ck *checkpoint, store cluster.Nodes) *otherNodes {
	return &otherNodes{checkpoint: ck, store: store, byName: map[string]cluster.NodeID{}, doubtful: map[string]bool{}}
}

// load reads the file. Without a file no other node was seen.
func (o *otherNodes) load() error {
	var ids []cluster.NodeID
	err := readSeen(o.checkpoint.dir, otherNodesFile, &ids)
	for _, id := range ids {
		o.byName[id.RecordName()] = id
	}
	return err
}

// save writes the file if something has changed.
func (o *otherNodes) save() error {
	if !o.changed {
		return nil
	}
	ids := make([]cluster.NodeID, 0, len(o.byName))
	for _, name := range slices.Sorted(maps.Keys(o.byName)) {
		ids = append(ids, o.byName[name])
	}
	err := writeSeen(o.checkpoint.dir, otherNodesFile, ids)
	o.changed = err != nil
	return err
}

func (o *otherNodes) add(id cluster.NodeID) {
	if id == o.checkpoint.Node {
		return
	}
	if name := id.RecordName(); o.byName[name] != id {
		o.byName[name], o.changed = id, true
	}
}

func (o *otherNodes) remove(name string) {
	if _, ok := o.byName[name]; ok {
		delete(o.byName, name)
		o.changed = true
	}
}

func (o *otherNodes) has(id cluster.NodeID) bool { return o.byName[id.RecordName()] == id }

// doubt makes the nodes doubtful that a list or snapshot lacks, and reports whether there are any.
func (o *otherNodes) doubt(there map[string]cluster.NodeID) (any bool) {
	for name := range o.byName {
		if _, ok := there[name]; !ok {
			o.doubtful[name], any = true, true
		}
	}
	return any
}

// list adds the nodes that the store has, and makes those doubtful that it lacks.
func (o *otherNodes) list(ctx context.Context) error {
	there := map[string]cluster.NodeID{}
	for n, err := range o.store.All(ctx) {
		if errors.Is(err, cluster.ErrUnreadable) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list the nodes: %w", err)
		}
		there[n.ID.RecordName()] = n.ID
		o.add(n.ID)
	}
	o.doubt(there)
	o.complete = true
	return nil
}

// apply applies a change that the watch tells, and reports whether this node must connect again. first is true for the
// first snapshot.
func (o *otherNodes) apply(change cluster.Change[cluster.Node], first bool) (news bool) {
	own := o.checkpoint.Node.RecordName()
	switch change.Kind {
	case cluster.Snapshot:
		o.complete = true
		there := map[string]cluster.NodeID{}
		for _, n := range change.All {
			there[n.ID.RecordName()] = n.ID
			if n.ID == o.checkpoint.Node && n.State != cluster.NodeActive {
				news = true // connect answers to the deletion
			}
		}
		if o.doubt(there) {
			news = true // connect finds out why it is gone
		}
		if _, ok := there[own]; !ok && o.checkpoint.Registered && !first {
			news = true
		}
		for _, id := range there {
			o.add(id)
		}
	case cluster.Put:
		if change.Name == own {
			if change.Item.State != cluster.NodeActive {
				news = true
			}
			return news
		}
		o.add(change.Item.ID)
	case cluster.Deleted:
		if change.Name == own {
			return true
		}
		o.remove(change.Name)
	}
	return news
}
