package nodecheck

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/loader"
)

// pinsDue are the programs that the agent says it has, and their maps.
func (a answers) pinsDue() (items []Item) {
	for _, name := range bpf.MapNames() {
		items = append(items, Item{"pin", filepath.Join("maps", name)})
	}
	if a.hasTunnel() {
		for _, name := range []string{bpf.Owners, bpf.TunnelDrops, bpf.ToTunnel, bpf.FromTunnel} {
			items = append(items, Item{"pin of the tunnel", name})
		}
	}
	if a.status.Proxy.InUse {
		items = append(items, Item{"pin", "proxy/select_listener"})
	}
	for _, p := range a.status.Datapath.Programs {
		items = append(items, Item{"pinned program", fmt.Sprintf("%s %s, ID %d", a.status.Datapath.Digest, p.Name, p.ID)})
	}
	return items
}

// inspect reads the pins without the agent.
func (c *Checker) inspect() (found datapath.Inspection, err error) {
	err = c.node.Do(func() (err error) {
		found, err = datapath.Inspect(c.node.BPFRoot)
		return err
	})
	return found, err
}

// pinItems is everything below the BPF root.
func (c *Checker) pinItems() (items []Item, err error) {
	found, err1 := c.inspect()
	for _, p := range found.Programs {
		items = append(items, Item{"pinned program", fmt.Sprintf("%s %s, ID %d", p.Digest, p.Name, p.ID)})
	}
	pins, err2 := below(c.node.BPFRoot)
	known := func(path string) bool { // counted above, by what is pinned there
		return slices.ContainsFunc(found.Programs, func(p loader.PinnedProgram) bool { return path == filepath.Join("programs", p.Digest, p.Name) })
	}
	for _, path := range pins {
		if strings.HasPrefix(path, "tunnel/") {
			items = append(items, Item{"pin of the tunnel", filepath.Base(path)})
		} else if !known(path) {
			items = append(items, Item{"pin", path})
		}
	}
	return items, errors.Join(err1, err2)
}

// ordinary are the files that an agent at rest has in its state folder, the namespace of its health endpoint among
// them: whatever else is there was left.
var ordinary = []string{"ledger.db", "deletions/lock", "heartbeat", "health.netns"}

func (c *Checker) fileItems() (items []Item, err error) {
	files, err := below(c.node.StateDir)
	for _, path := range files {
		if !slices.Contains(ordinary, path) {
			items = append(items, Item{"file", path})
		}
	}
	return items, err
}

// below lists the files below a folder, by their paths in it. Files that go meanwhile are left out.
func below(dir string) (files []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && !entry.IsDir() {
			name, _ := filepath.Rel(dir, path)
			files = append(files, name)
		}
		return err
	})
	return files, err
}
