package cluster

import (
	"context"
	"iter"
	"net/netip"
)

// Version is the state of a record that was read. It is a condition of a later change; only equality means something.
type Version string

// Change is what a watch tells.
type Change[T any] struct {
	Kind ChangeKind
	Name string // of the record of Put and Deleted
	Item T      // of Put
	All  []T    // of Snapshot: all records that exist
	// Snapshots of [Backend.Endpoints] come page by page. Continues: this page and the one before are of one list, as it
	// was at one moment. More: the next page follows at once. A page after one with More that does not continue begins the
	// list again.
	Continues, More bool
	// Resumed says that the snapshot is the caller's own: see [Resume].
	Resumed bool
	// Mark is where the watch is after the change; "" if no other watch can go on from here.
	Mark Mark
}

// Mark says how far a watch has got. It is a text of the backend.
type Mark string

// Resume is what an earlier watch has told, for another one to go on from there. The zero Resume has nothing.
type Resume[T any] struct {
	Mark Mark
	// Check is called before the records are used. It returns [ErrOtherOrigin] if the store has others by now; after
	// another error it is called again.
	Check func(ctx context.Context) error
	// Pages calls page with all records that there were at the mark, with their versions, in pages. It fails if they are
	// not there any more.
	Pages func(page func([]T)) error
}

// ChangeKind says what a [Change] is.
type ChangeKind string

// The kinds of changes.
const (
	Snapshot ChangeKind = "snapshot"
	Put      ChangeKind = "put"
	Deleted  ChangeKind = "deleted"
)

// Records are the records of a kind with a name K, which agents and administrators change.
type Records[K, T any] interface {
	// Create adds the record, or returns [ErrExists].
	Create(ctx context.Context, item T) (T, error)
	Get(ctx context.Context, name K) (T, error)
	// Update changes the record if it still has the item's Version, or returns [ErrConflict], also when it is gone.
	Update(ctx context.Context, item T) (T, error)
	// Delete removes the record if it still has the item's Version. If it is gone already, that is a success.
	Delete(ctx context.Context, item T) error
	All(ctx context.Context) iter.Seq2[T, error]
	// Watch ends when ctx does, or when the backend stops.
	Watch(ctx context.Context) (<-chan Change[T], error)
}

// Nodes are the incarnations of the cluster's nodes. All agents watch them, so a record changes only when a node comes
// or goes.
type Nodes = Records[NodeID, Node]

// Sessions say which process is the agent of a node. A session changes at each start of an agent; only the node itself
// watches it.
type Sessions interface {
	Get(ctx context.Context, id NodeID) (Session, error)
	// Put creates the session when s.Version is "" ([ErrExists]), and else changes it ([ErrConflict]).
	Put(ctx context.Context, s Session) (Session, error)
	Delete(ctx context.Context, id NodeID) error
	All(ctx context.Context) iter.Seq2[Session, error]
	Watch(ctx context.Context, id NodeID) (<-chan Change[Session], error)
}

// Pools are the cluster's address pools.
type Pools = Records[string, Pool]

// Blocks are the claims of nodes. A record never changes; they are not watched.
type Blocks interface {
	// Create claims the block, or returns [ErrExists].
	Create(ctx context.Context, b Block) error
	Get(ctx context.Context, cidr netip.Prefix) (Block, error)
	// Delete ends a claim. When the block is gone it is a success, when it has another claim [ErrConflict].
	Delete(ctx context.Context, cidr netip.Prefix, claim string) error
	All(ctx context.Context, filter BlockFilter) iter.Seq2[Block, error]
}

// BlockFilter selects blocks. The zero filter selects all.
type BlockFilter struct {
	Pool  string // name; "" for any
	Owner NodeID // the zero ID for any
}

// Match reports whether the filter selects b.
func (f BlockFilter) Match(b Block) bool {
	return (f.Pool == "" || f.Pool == b.Pool) && (f.Owner == NodeID{} || f.Owner == b.Owner)
}

// Info is the one record of the cluster as a whole.
type Info interface {
	// Get returns the record, and where the store was when it was read. When there is no record the position is valid,
	// too.
	Get(ctx context.Context) (ClusterInfo, Position, error)
	// Recent is Get from what an open watch of this process has told last, without a request where the backend can do so.
	// Its position may be a few minutes old, and an earlier Get may have returned a higher one.
	Recent(ctx context.Context) (ClusterInfo, Position, error)
	// Put creates the record when info.Version is "" ([ErrExists]), and else changes it ([ErrConflict]).
	Put(ctx context.Context, info ClusterInfo) (ClusterInfo, error)
	Watch(ctx context.Context) (<-chan Change[ClusterInfo], error)
}

// Published are records that tell other nodes of a node. The node's agent alone writes them, an administrator deletes
// them, and all agents watch them.
type Published[T any] interface {
	// Put creates the record when its Version is "" ([ErrExists]), and else changes it ([ErrConflict]).
	Put(ctx context.Context, item T) (T, error)
	// Delete removes the record if it still has its Version. One that is gone is a success.
	Delete(ctx context.Context, item T) error
	All(ctx context.Context) iter.Seq2[T, error]
	// Watch goes on from an earlier watch if the backend can: then the first snapshot has the records of from, and the
	// changes since follow. Otherwise it begins with a list.
	Watch(ctx context.Context, from Resume[T]) (<-chan Change[T], error)
}

// Backend is all that the nodes share, in one store.
type Backend struct {
	Nodes    Nodes
	Sessions Sessions
	Pools    Pools
	Blocks   Blocks
	// ListsByOwner says that a list of one owner's blocks costs no more than one of these blocks, and not as much as a
	// list of all.
	ListsByOwner bool
	Info         Info
	// Networks has one record for each node, Endpoints one for each group of endpoints.
	Networks  Published[NodeNetwork]
	Endpoints Published[EndpointGroup]
	// AgentRights says that this process has the rights of a node's agent alone: administrators change pools and delete
	// nodes elsewhere.
	AgentRights bool
}

// Command returns the command of an administrator, such as "pool set", as it is to be run with this backend.
func (b Backend) Command(command string) string {
	if b.AgentRights {
		return "porin cluster " + command
	}
	return "porin " + command
}
