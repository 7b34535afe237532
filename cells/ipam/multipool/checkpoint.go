package multipool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"porin.dev/porin/cells/cluster"
)

// checkpoint is what the node remembers on its disk. It is written before anybody else can rely on what it says: a claim before the
// block is created, a release before the block is deleted.
type checkpoint struct {
	Node       cluster.NodeID `json:"node"`
	Registered bool           `json:"registered"` // the node's record has been created
	// Boot and Machine are the boot ID of the machine and the hash of its machine-id, when it was written.
	Boot    string `json:"boot"`
	Machine string `json:"machine,omitempty"`

	// Sessions are the last sessions of this machine's agents, the newest at the end. Each is here before it is in the store.
	Sessions []string `json:"sessions,omitempty"`
	// Contested says why this agent gives out nothing: another machine has its key.
	Contested string `json:"contested,omitempty"`

	// Cluster, Epoch and Position say which store the node knows, and how far it has seen its history.
	Cluster  string           `json:"cluster,omitempty"`
	Epoch    uint64           `json:"epoch,omitempty"`
	Position cluster.Position `json:"position"`

	Pools  []cluster.Pool `json:"pools,omitempty"` // of the blocks
	Blocks []ownBlock     `json:"blocks,omitempty"`
}

// blockState says what the node knows of a block that it has claimed.
type blockState string

const (
	blockClaiming blockState = "claiming" // the creation was sent; it is never adopted without an answer
	blockOwned    blockState = "owned"
	blockReleased blockState = "released" // nothing of it is given out any more; it is to be deleted
	blockConflict blockState = "conflict" // another node owns it, and addresses of it are in use here
	// blockReclaiming is a block whose claim was lost, or belongs to a former incarnation, and is made again: addresses of it are in use.
	blockReclaiming blockState = "reclaiming"
)

// inUseOnly reports whether addresses of the block are in use here, and it is not this node's: nothing of it is given out.
func (s blockState) inUseOnly() bool { return s == blockConflict || s == blockReclaiming }

// ownBlock is a block of the node in the checkpoint.
type ownBlock struct {
	CIDR    netip.Prefix `json:"cidr"`
	Pool    string       `json:"pool"`
	PoolUID string       `json:"poolUID"`
	Claim   string       `json:"claim"`
	State   blockState   `json:"state"`
	Rival   string       `json:"rival,omitempty"` // of a conflict: the node that owns the block
	// Checks is how often a released block is to be looked for again: its creation had no answer, and may yet arrive.
	Checks int `json:"checks,omitempty"`
}

// The files in Config.Dir.
const (
	checkpointFile = "multipool.json"
	otherNodesFile = "multipool-nodes.json"
	keyFile        = "node-key"
)

// loadCheckpoint reads the node's key and checkpoint, or makes the key. A checkpoint of another key or of another node's name is
// left out of account: the node begins as a new one.
func loadCheckpoint(cfg Config) (c checkpoint, err error) {
	key, err := loadKey(cfg.Dir)
	if err != nil {
		return c, err
	}
	id := cluster.NodeID{Name: cfg.Node, Key: key}
	text, err := os.ReadFile(filepath.Join(cfg.Dir, checkpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return checkpoint{Node: id}, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	if err != nil {
		return c, fmt.Errorf("read the checkpoint of the node's blocks: %w: move the file away if it is damaged; the node begins as a new one when %s is removed, too", err, keyFile)
	}
	if c.Node != id {
		return checkpoint{Node: id}, nil
	}
	return c, nil
}

func loadKey(dir string) (string, error) {
	path := filepath.Join(dir, keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		key := cluster.NewKey()
		return key, writeFile(path, []byte(key+"\n"))
	}
	if err != nil {
		return "", fmt.Errorf("read the node's key: %w", err)
	}
	id := cluster.NodeID{Name: "x", Key: string(text[:max(0, len(text)-1)])}
	if err := id.Validate(); err != nil {
		return "", fmt.Errorf("read the node's key %s: %w", path, err)
	}
	return id.Key, nil
}

// newIncarnation replaces the key: the node goes on as another one, with the blocks of which it has addresses in use.
func (c *checkpoint) newIncarnation(dir string) error {
	key := cluster.NewKey()
	if err := writeFile(filepath.Join(dir, keyFile), []byte(key+"\n")); err != nil {
		return err
	}
	c.Node.Key, c.Registered, c.Sessions, c.Contested = key, false, nil, ""
	return c.save(dir)
}

// save replaces the file, as a whole or not at all, and returns when it is on the disk.
func (c *checkpoint) save(dir string) error {
	text, err := json.MarshalIndent(c, "", " ")
	if err == nil {
		err = writeFile(filepath.Join(dir, checkpointFile), text)
	}
	if err != nil {
		return fmt.Errorf("write the checkpoint of the node's blocks: %w", err)
	}
	return nil
}

// newSuffix ends the name of a file that is being written.
const newSuffix = ".new"

func writeFile(path string, text []byte) error {
	f, err := os.OpenFile(path+newSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// maxSessions is how many sessions are remembered: a store that was restored has an older one.
const maxSessions = 100

func (c *checkpoint) addSession(id string) {
	c.Sessions = append(c.Sessions, id)
	if n := len(c.Sessions) - maxSessions; n > 0 {
		c.Sessions = slices.Clone(c.Sessions[n:])
	}
}

// block returns the block of the checkpoint, or nil.
func (c *checkpoint) block(cidr netip.Prefix) *ownBlock {
	i := slices.IndexFunc(c.Blocks, func(b ownBlock) bool { return b.CIDR == cidr })
	if i < 0 {
		return nil
	}
	return &c.Blocks[i]
}

// explains reports whether the checkpoint has the claim, or will compare its own one of the same block with it. A released claim does not:
// it is only deleted.
func (c *checkpoint) explains(b cluster.Block) bool {
	own := c.block(b.CIDR)
	return own != nil && (own.Claim == b.Claim || own.State != blockReleased)
}

// set adds the block, or replaces it.
func (c *checkpoint) set(b ownBlock) {
	if was := c.block(b.CIDR); was != nil {
		*was = b
		return
	}
	c.Blocks = append(c.Blocks, b)
}

func (c *checkpoint) drop(cidr netip.Prefix) {
	c.Blocks = slices.DeleteFunc(c.Blocks, func(b ownBlock) bool { return b.CIDR == cidr })
}
