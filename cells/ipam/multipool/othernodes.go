package multipool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"porin.dev/porin/cells/cluster"
)

// otherNodes are the nodes that this one has seen in the store: one that is gone and that nobody has deleted says that the store has
// gone back. They have a file of their own, as there may be thousands, and they change less often than blocks. It is not safe for
// concurrent use.
type otherNodes struct {
	dir   string
	names map[string]cluster.NodeID // by the names of their records
	// doubtful are those that a list or a watch did not have. Either may be late: they are read before they are forgotten.
	doubtful map[string]bool
	dirty    bool // the file is of an earlier time
	complete bool // all were told once, in this life of the agent
}

// loadOtherNodes reads the file; none is that no other node was seen.
func loadOtherNodes(dir string) (otherNodes, error) {
	o := otherNodes{dir: dir, names: map[string]cluster.NodeID{}, doubtful: map[string]bool{}}
	path := filepath.Join(dir, otherNodesFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return o, nil
	}
	var ids []cluster.NodeID
	if err == nil {
		err = json.Unmarshal(text, &ids)
	}
	if err != nil {
		return o, fmt.Errorf("read the nodes that this one has seen: %w: remove %s if it is damaged", err, path)
	}
	for _, id := range ids {
		o.names[id.RecordName()] = id
	}
	return o, nil
}

// save writes the file if something has changed.
func (o *otherNodes) save() error {
	if !o.dirty {
		return nil
	}
	ids := make([]cluster.NodeID, 0, len(o.names))
	for _, name := range slices.Sorted(maps.Keys(o.names)) {
		ids = append(ids, o.names[name])
	}
	text, err := json.Marshal(ids)
	if err == nil {
		err = writeFile(filepath.Join(o.dir, otherNodesFile), text)
	}
	if err != nil {
		return fmt.Errorf("write the nodes that this one has seen: %w", err)
	}
	o.dirty = false
	return nil
}

func (o *otherNodes) add(id cluster.NodeID) {
	if name := id.RecordName(); o.names[name] != id {
		o.names[name], o.dirty = id, true
	}
}

func (o *otherNodes) remove(name string) {
	if _, ok := o.names[name]; ok {
		delete(o.names, name)
		o.dirty = true
	}
}

func (o *otherNodes) has(id cluster.NodeID) bool { return o.names[id.RecordName()] == id }

// doubt doubts those that are not there, and reports whether that is any.
func (o *otherNodes) doubt(there map[string]cluster.NodeID) (any bool) {
	for name := range o.names {
		if _, ok := there[name]; !ok {
			o.doubtful[name], any = true, true
		}
	}
	return any
}
