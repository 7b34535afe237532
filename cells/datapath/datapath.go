package datapath

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath/hostfilter"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/link"
	"porin.dev/porin/cells/monitor/flow"
	"porin.dev/porin/cells/policy/policymap"
	"porin.dev/porin/internal/fault"
)

// Datapath is this node's part of the kernel. Its Links, Uplinks, Maps and Pins answer [ErrNotStarted] unless it is
// started.
type Datapath struct {
	cfg         Config
	log         *slog.Logger
	pins        pins
	maps        kernelMaps
	links       nodeLinks
	uplinks     *uplinks
	fromUplinks *uplinks
	enforcer    *Enforcer

	sweeper      sweeper
	flowEvents   flowEvents
	translations translations

	mu        sync.Mutex      // guards the fields below
	objects   *loader.Objects // nil unless started
	namespace *os.File        // the network namespace it was started in
	root      *os.File        // the lock of the BPF root
	status    v1.Datapath
}

// New returns a datapath that is not started. It touches nothing.
func New(cfg Config, log *slog.Logger) (*Datapath, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the datapath: %w", err)
	}
	uplinks := newUplinks(uplinkEgress, log)
	return &Datapath{
		cfg: cfg, log: log, pins: pins{loader: newLoader(cfg, bpf.EndpointObject(), log)},
		uplinks: uplinks, fromUplinks: newUplinks(uplinkIngress, log), enforcer: newEnforcer(uplinks, log), sweeper: sweeper{takeOverAfter: takeOverAfter},
	}, nil
}

func newLoader(cfg Config, object []byte, log *slog.Logger) *loader.Loader {
	return loader.New(loader.Config{
		Root: cfg.BPFRoot, MaxEndpoints: cfg.MaxEndpoints, MaxConnections: cfg.MaxConnections, MaxAddresses: cfg.MaxAddresses, Object: object,
	}, log)
}

// Start adopts or loads the programs, on maps of the configured size, makes the node an IPv4 router, and opens the
// sockets. Only one Datapath may be started in a network namespace. One on the BPF root of another is
// [loader.ErrRootInUse].
func (d *Datapath) Start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.objects != nil {
		return nil
	}
	if err := d.start(ctx); err != nil {
		return fmt.Errorf("start the datapath: %w", err)
	}
	return nil
}

// start expects the lock.
func (d *Datapath) start(ctx context.Context) error {
	root, err := d.pins.loader.Lock(ctx)
	if err != nil {
		return err
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return errors.Join(err, root.Close())
	}
	objects, err := d.pins.loader.Load(ctx, probeAttach)
	if err != nil {
		return errors.Join(err, namespace.Close(), root.Close())
	}
	if err := d.startParts(objects, namespace); err != nil {
		d.stopUplinks()
		objects.Close()
		return errors.Join(err, d.links.stop(), namespace.Close(), root.Close())
	}
	d.translations.start(namespace)
	d.maps.set((*bpfMaps)(objects.Maps))
	d.enforcer.start(policyMaps(objects.Maps), hostfilter.New(namespace, d.log))
	d.pins.set(objects)
	d.sweeper.set(objects.Sweep)
	d.objects, d.namespace, d.root, d.status = objects, namespace, root, describe(objects)
	if err := d.SweepConnections(ctx); err != nil { // from here on the timer is not a previous agent's
		return errors.Join(err, d.stop())
	}
	return nil
}

// startParts starts the parts that open sockets and maps of their own. The caller stops them when one fails.
func (d *Datapath) startParts(objects *loader.Objects, namespace *os.File) error {
	if err := d.links.start(objects.Programs, namespace, d.log); err != nil {
		return err
	}
	err := errors.Join(d.uplinks.start(objects.Programs.ToUplink, namespace), d.fromUplinks.start(objects.Programs.FromUplink, namespace))
	if err != nil {
		return err
	}
	blocks, err := readBlocks(objects.Maps.RemoteBlocks)
	if err != nil {
		return err
	}
	if len(blocks) > 0 {
		d.uplinks.resume(directPath)
	}
	return d.flowEvents.start(objects.Maps)
}

// Stop waits for links that are being deleted and closes everything. Kernel state stays, and works.
func (d *Datapath) Stop(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stop()
}

// stop expects the lock.
func (d *Datapath) stop() error {
	if d.objects == nil {
		return nil
	}
	d.stopUplinks()
	err := errors.Join(d.enforcer.stop(), d.links.stop(), d.flowEvents.stop(), d.translations.stop(), d.namespace.Close())
	d.maps.set(nil)
	d.pins.set(nil)
	d.sweeper.set(nil)
	d.objects.Close()
	d.objects = nil
	return errors.Join(err, d.root.Close())
}

func (d *Datapath) stopUplinks() {
	d.uplinks.stop()
	d.fromUplinks.stop()
}

// Links are the node's links.
func (d *Datapath) Links() Links { return &d.links }

// Enforcer has the kernel decide as policies say.
func (d *Datapath) Enforcer() *Enforcer { return d.enforcer }

func policyMaps(m *loader.Maps) policymap.Maps {
	return policymap.Maps{
		Policies: m.Policies, ActiveCopy: m.ActiveCopy, Addresses: m.Addresses, Prefixes: m.Prefixes, Tables: m.Tables, Rows: m.Rows,
	}
}

// Uplinks are the other devices of the node.
func (d *Datapath) Uplinks() Uplinks { return d.uplinks }

// Maps are those in the kernel.
func (d *Datapath) Maps() Maps { return &d.maps }

// Counters are those in the maps.
func (d *Datapath) Counters() Counters { return &d.maps }

// FlowEvents are the packets that the programs tell of.
func (d *Datapath) FlowEvents() flow.Source { return &d.flowEvents }

// Translations are made by the node's stack.
func (d *Datapath) Translations() flow.Translations { return &d.translations }

// Pins are those below the BPF root.
func (d *Datapath) Pins() Pins { return &d.pins }

// Status says what is loaded; it is empty before Start.
func (d *Datapath) Status() v1.Datapath {
	d.mu.Lock()
	defer d.mu.Unlock()
	status := d.status
	status.BPFRoot = d.cfg.BPFRoot
	return status
}

func describe(objects *loader.Objects) v1.Datapath {
	programs := objects.Programs
	status := v1.Datapath{Digest: objects.Digest, Adopted: programs.Adopted, Missing: objects.MissingFeatures()}
	for _, p := range []struct {
		name string
		*loader.Program
	}{{bpf.FromPod, programs.FromPod}, {bpf.ToPod, programs.ToPod}, {bpf.ToUplink, programs.ToUplink}, {bpf.FromUplink, programs.FromUplink}} {
		status.Programs = append(status.Programs, v1.Program{Name: p.name, ID: p.ID, Tag: p.Tag})
	}
	return status
}

// The faults of an endpoint.
var (
	ErrNoLink       = link.ErrNoLink
	ErrForeignLink  = link.ErrForeign
	ErrAddress      = fault.New(fault.Invalid, "not an address that a container can have")
	ErrAddressInUse = fault.New(fault.Conflict, "address belongs to another link")
	ErrFull         = fault.New(fault.Exhausted, "no room in the BPF maps (see --max-endpoints)")
)

// errUpdated is returned when an endpoint came while something stale was to be removed.
var errUpdated = fault.New(fault.Unavailable, "an endpoint was attached meanwhile")

// ErrNotStarted is returned before Start and after Stop. Package loader has the faults of a start.
var ErrNotStarted = fault.New(fault.Unavailable, "datapath is not running")
