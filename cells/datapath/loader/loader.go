package loader

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/bits"
	"os"
	"path/filepath"
	"time"

	"github.com/cilium/ebpf"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/fault"
	"porin.dev/porin/internal/flock"
)

// Config says where programs and maps are pinned, and how large the maps are.
type Config struct {
	Root         string // a folder of a BPF file system, made when it is not there
	MaxEndpoints uint32
	// MaxConnections is the size of the map of connections. When it has changed the map is replaced by an empty one: see
	// bpf/lib/connection.h.
	MaxConnections uint32
	// MaxAddresses is how many addresses a copy of the policy may have: see bpf/lib/policy.h.
	MaxAddresses uint32
	Object       []byte // the compiled programs of bpf.EndpointObject, for the digest
}

// These are the folders below the root.
func (c Config) mapsDir() string     { return filepath.Join(c.Root, "maps") }
func (c Config) programsDir() string { return filepath.Join(c.Root, "programs") }
func (c Config) stagingDir() string  { return filepath.Join(c.Root, "staging") }

// Loader loads or adopts the programs and maps of one configuration.
type Loader struct {
	cfg Config
	log *slog.Logger
}

// New returns a loader. It touches nothing.
func New(cfg Config, log *slog.Logger) *Loader { return &Loader{cfg: cfg, log: log} }

// Objects are the programs and maps of an agent. Close closes them; pinned and attached objects stay.
type Objects struct {
	Digest   string
	Programs *Programs
	Maps     *Maps
	Sweep    *ebpf.Program // bpf.Sweep: the agent runs it, so it is loaded by each, and not pinned
}

// Close lets go of the objects.
func (o *Objects) Close() {
	o.Programs.close()
	o.Maps.Close()
	o.Sweep.Close()
}

// Load adopts what is pinned under the digest, or else loads and pins it, on the maps that are there. tryAttach gets
// programs that were just loaded, before they are pinned: its error ends Load.
//
// Maps of another size, or with other flags, take their place when the programs on them are loaded, so a start that
// fails before leaves them as they are. When ctx ends meanwhile, some maps are of the new size and some of the old one:
// the next Load goes on from there.
func (l *Loader) Load(ctx context.Context, tryAttach func(*Programs) error) (_ *Objects, err error) {
	spec, err := l.spec()
	if err != nil {
		return nil, err
	}
	out := &Objects{Digest: l.digest()}
	dir := filepath.Join(l.cfg.programsDir(), out.Digest)
	if out.Maps, err = openMaps(l.cfg.mapsDir(), spec); err != nil {
		return nil, err
	}
	if err = makeFolders(l.cfg.mapsDir(), dir); err == nil {
		out.Programs, err = l.programs(dir, spec, out.Maps, tryAttach)
	}
	if err == nil {
		out.Sweep, err = loadSweep(spec, out.Maps)
	}
	if err == nil {
		err = out.Maps.publish(ctx, l.cfg)
	}
	if err != nil {
		out.Close()
		return nil, err
	}
	return out, nil
}

// programs adopts what is pinned in dir, or loads and pins it.
func (l *Loader) programs(dir string, spec *ebpf.CollectionSpec, maps *Maps, tryAttach func(*Programs) error) (*Programs, error) {
	programs, err := adopt(dir, spec, maps)
	if err == nil {
		return programs, nil
	}
	reason := err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		reason = "none with this digest are pinned"
	}
	l.log.Info("loading BPF programs", "digest", filepath.Base(dir), "reason", reason)
	return loadPrograms(dir, spec, maps, tryAttach)
}

// spec is the object as it is configured.
func (l *Loader) spec() (*ebpf.CollectionSpec, error) {
	spec, err := bpf.Endpoint()
	if err != nil {
		return nil, err
	}
	sum := l.sum()
	keys := uint32(1) << bits.Len32(l.cfg.MaxConnections-1) // the next power of two
	err = errors.Join(
		spec.Variables[bpf.GatewayIPv4].Set(v1.GatewayIPv4.As4()), spec.Variables[bpf.KeyQueueMask].Set(keys-1), spec.Variables[bpf.Digest].Set(sum[:]),
	)
	if err != nil {
		return nil, fmt.Errorf("configure BPF programs: %w", err)
	}
	spec.Maps[bpf.Links].MaxEntries = l.cfg.MaxEndpoints
	spec.Maps[bpf.Passed].MaxEntries = l.cfg.MaxEndpoints + 1 // by number; no endpoint has 0
	spec.Maps[bpf.Policies].MaxEntries = l.cfg.MaxEndpoints + 1
	spec.Maps[bpf.Drops].MaxEntries = l.cfg.MaxEndpoints + 1 // and the node's own
	spec.Maps[bpf.Recount].MaxEntries = l.cfg.MaxEndpoints + 1
	spec.Maps[bpf.Endpoints].MaxEntries = 2 * l.cfg.MaxEndpoints
	spec.Maps[bpf.Connections].MaxEntries = l.cfg.MaxConnections
	spec.Maps[bpf.KeyQueue].MaxEntries = keys
	spec.Maps[bpf.Addresses].MaxEntries = abi.PolicyCopies * l.cfg.MaxAddresses
	return spec, nil
}

// digest names object and configuration.
func (l *Loader) digest() string {
	sum := l.sum()
	return hex.EncodeToString(sum[:])
}

func (l *Loader) sum() [8]byte {
	h := sha256.New()
	h.Write(l.cfg.Object)
	fmt.Fprintf(h, "gateway %s endpoints %d connections %d addresses %d", v1.GatewayIPv4, l.cfg.MaxEndpoints, l.cfg.MaxConnections, l.cfg.MaxAddresses)
	return [8]byte(h.Sum(nil))
}

// Why a start fails.
var (
	ErrNoBPFFS      = fault.New(fault.Unavailable, "not on a BPF file system")
	ErrIncompatible = fault.New(fault.Conflict, "pinned map does not fit this agent")
	ErrKernel       = fault.New(fault.Unavailable, "kernel lacks what Porin needs")
	ErrRootInUse    = fault.New(fault.Conflict, "another process has it open; one agent a bpf-root: end the other one or give this one its own")
)

// An agent that was just killed has its lock until the kernel has ended its threads.
const (
	lockWait  = 2 * time.Second
	lockRetry = 10 * time.Millisecond
)

// Lock makes the root ours until the file is closed: an agent removes what is below it and is not its own, so no other
// one may use it. It makes the folder if need be, and answers [ErrRootInUse] when another process has locked it.
func (l *Loader) Lock(ctx context.Context) (*os.File, error) {
	if err := onBPFFS(l.cfg.Root); err != nil {
		return nil, err
	}
	if err := makeFolders(l.cfg.Root); err != nil {
		return nil, err
	}
	root, err := os.Open(l.cfg.Root)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	err = flock.Wait(ctx, root, lockRetry)
	if errors.Is(err, flock.ErrLocked) {
		err = ErrRootInUse
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("BPF root %s: %w", l.cfg.Root, err), root.Close())
	}
	return root, nil
}
