package multipool

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"

	"porin.dev/porin/cells/cluster"
	"porin.dev/porin/internal/diskfile"
)

// checkpoint is what the node remembers on its disk. It is written before anybody else can rely on what it says: a
// claim before the block is created, a release before the block is deleted.
type checkpoint struct {
	checkpointFields

	dir     string
	boot    string // boot ID of the machine, now
	machine string // [machineID], now
	// rebooted is true after a boot of the machine until the blocks were reconciled with the store.
	rebooted bool
	changed  bool // since the file was written; it is written at the end of the round
	unsaved  bool // the last write failed
}

// checkpointFields is the content of the file.
type checkpointFields struct {
	Node       cluster.NodeID `json:"node"`
	Registered bool           `json:"registered"` // the node's record has been created
	// Boot and Machine are the boot ID of the machine and the hash of its machine-id at the time of writing.
	Boot    string `json:"boot"`
	Machine string `json:"machine,omitempty"`

	// Sessions are the last sessions of this machine's agents, the newest at the end. Each is here before it is in the
	// store.
	Sessions []string `json:"sessions,omitempty"`
	// Contested is why this agent gives out nothing, because another machine has its key; "" when none has.
	Contested string `json:"contested,omitempty"`

	// Cluster and Position are the store that the node knows, and the last of its history that the node has seen.
	Cluster  string           `json:"cluster,omitempty"`
	Position cluster.Position `json:"position"`
	// Recoveries are the recoveries of the store that the node has seen last, the newest at the end.
	Recoveries []string `json:"recoveries,omitempty"`
	// RecoveryRequested says that an administrator has asked this node to begin a recovery when it reaches the store.
	RecoveryRequested bool `json:"recoveryRequested,omitempty"`
	// Writes is the count in the last session that the node has written.
	Writes uint64 `json:"writes,omitempty"`

	// NodeUID is the UID of the Kubernetes Node that the node's record has, and NodeLabels are the Node's last labels.
	NodeUID    string            `json:"nodeUID,omitempty"`
	NodeLabels map[string]string `json:"nodeLabels,omitempty"`

	Blocks []OwnBlock `json:"blocks,omitempty"`
	// Pools are the accepted pools, by name: an agent that starts without the store gives out addresses by them.
	Pools []cluster.Pool `json:"pools,omitempty"`
}

// load reads the node's key and the file, or makes the key. It ignores a file of another key or of another node's name:
// the node begins as a new one.
func (c *checkpoint) load(name string) error {
	key, err := loadKey(c.dir)
	if err != nil {
		return err
	}
	id := cluster.NodeID{Name: name, Key: key}
	var saved checkpointFields
	err = diskfile.ReadJSON(filepath.Join(c.dir, checkpointFile), &saved)
	if errors.Is(err, fs.ErrNotExist) {
		saved.Node = id
	} else if err != nil {
		return fmt.Errorf("read the checkpoint of the node's blocks: %w: move the file away if it is damaged; the node begins as a new one when %s is removed, too", err, keyFile)
	}
	if saved.Node.Key == key && saved.Node.Name != name { // the key says that this is the other node
		if id.Key, err = newKey(c.dir); err != nil {
			return fmt.Errorf("give the node another key, as its name has changed: %w", err)
		}
	}
	if saved.Node != id {
		saved = checkpointFields{Node: id}
	}
	c.checkpointFields = saved
	c.rebooted = c.boot == "" || c.boot != c.Boot
	return nil
}

// save writes the file. Nothing that relies on it may happen before.
func (c *checkpoint) save() error {
	if !c.rebooted { // a boot is over when the blocks were reconciled
		c.Boot, c.Machine = c.boot, c.machine
	}
	err := diskfile.ReplaceJSON(filepath.Join(c.dir, checkpointFile), c.checkpointFields)
	c.changed, c.unsaved = err != nil, err != nil
	if err != nil {
		return fmt.Errorf("write the checkpoint of the node's blocks: %w", err)
	}
	return nil
}

// setPools reports whether the pools are others than in the checkpoint. It leaves out a change that is not accepted
// yet.
func (c *checkpoint) setPools(byName map[string]cluster.Pool) (changed bool) {
	var list []cluster.Pool
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		p := byName[name]
		if len(p.Pending) > 0 {
			i := slices.IndexFunc(c.Pools, func(was cluster.Pool) bool { return was.Name == name })
			if i < 0 {
				continue
			}
			p = c.Pools[i]
		}
		p.Version = "" // which the file lacks
		list = append(list, p)
	}
	changed = !reflect.DeepEqual(list, c.Pools)
	c.Pools = list
	return changed
}

// isAnotherMachine reports whether the machine has booted with another machine-id than the given one. It is false when
// one of them is unknown.
func (c *checkpoint) isAnotherMachine(machineID string) bool {
	return c.rebooted && machineID != "" && c.machine != "" && machineID != c.machine
}

// newIncarnation replaces the key: the node continues as another node, with the blocks that have addresses in use here.
func (c *checkpoint) newIncarnation() error {
	key, err := newKey(c.dir)
	if err != nil {
		return err
	}
	c.Node.Key, c.Registered, c.Sessions, c.Contested, c.Writes, c.NodeUID = key, false, nil, "", 0, ""
	return c.save()
}

// A store that was restored has an older session, and perhaps an older recovery: the checkpoint has the last ones.
const (
	maxSessions   = 100
	maxRecoveries = 20
)

func appendLast(list []string, one string, most int) []string {
	list = append(slices.Clone(list), one)
	return list[max(0, len(list)-most):]
}

// lastRecovery is the newest recovery that the node has seen; "" when there was none.
func (c *checkpoint) lastRecovery() string {
	if len(c.Recoveries) == 0 {
		return ""
	}
	return c.Recoveries[len(c.Recoveries)-1]
}

// block returns the block of the checkpoint, or nil.
func (c *checkpoint) block(cidr netip.Prefix) *OwnBlock {
	i := slices.IndexFunc(c.Blocks, func(b OwnBlock) bool { return b.CIDR == cidr })
	if i < 0 {
		return nil
	}
	return &c.Blocks[i]
}

// explains reports whether the checkpoint has the claim, or has a claim of the same block that is going to be
// reconciled with it. A released claim is not: it is only deleted.
func (c *checkpoint) explains(b cluster.Block) bool {
	own := c.block(b.CIDR)
	return own != nil && (own.Claim == b.Claim || own.State != blockReleased)
}

// claimable reports whether the node may claim the block: it does not have it, or an earlier claim had no answer and
// was deleted since. Should the earlier claim arrive late, it is this node's, and is deleted with the new one.
func (c *checkpoint) claimable(cidr netip.Prefix) bool {
	b := c.block(cidr)
	return b == nil || b.State == blockReleased && 0 < b.Checks && b.Checks < lateChecks
}

// set adds the block, or replaces it.
func (c *checkpoint) set(b OwnBlock) {
	if was := c.block(b.CIDR); was != nil {
		*was = b
		return
	}
	c.Blocks = append(c.Blocks, b)
}

// put is set and save.
func (c *checkpoint) put(b OwnBlock) error {
	c.set(b)
	return c.save()
}

func (c *checkpoint) remove(cidr netip.Prefix) {
	c.Blocks = slices.DeleteFunc(c.Blocks, func(b OwnBlock) bool { return b.CIDR == cidr })
}
