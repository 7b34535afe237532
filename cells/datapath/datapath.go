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
)

// Datapath is this node's part of the kernel. Its Links and Maps answer [ErrNotStarted] unless it is started.
type Datapath struct {
	loader loader
	maps   kernelMaps
	links  nodeLinks

	mu        sync.Mutex // guards the fields below
	loaded    *loaded    // nil unless started
	namespace *os.File   // the network namespace it was started in
	root      *os.File   // the claim on the BPF root
	status    v1.Datapath
}

// New returns a datapath that is not started. It touches nothing.
func New(cfg Config, log *slog.Logger) (*Datapath, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configure the datapath: %w", err)
	}
	return &Datapath{loader: loader{cfg: cfg, log: log, object: bpf.EndpointObject()}, links: nodeLinks{log: log}}, nil
}

// Start adopts or loads the programs, on maps of the configured size, makes the node an IPv4 router, and opens the sockets.
// Only one Datapath may be started in a network namespace. One on the BPF root of another is [ErrRootInUse].
func (d *Datapath) Start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded != nil {
		return nil
	}
	if err := d.start(ctx); err != nil {
		return fmt.Errorf("start the datapath: %w", err)
	}
	return nil
}

// start expects the lock.
func (d *Datapath) start(ctx context.Context) error {
	root, err := d.loader.cfg.claim(ctx)
	if err != nil {
		return err
	}
	namespace, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return errors.Join(err, root.Close())
	}
	loaded, err := d.load(namespace)
	if err != nil {
		return errors.Join(err, namespace.Close(), root.Close())
	}
	d.maps.set(loaded.maps)
	d.loaded, d.namespace, d.root, d.status = loaded, namespace, root, loaded.describe()
	return nil
}

func (d *Datapath) load(namespace *os.File) (*loaded, error) {
	loaded, err := d.loader.load()
	if err != nil {
		return nil, err
	}
	if err := d.links.start(loaded.programs, namespace); err != nil {
		loaded.close()
		return nil, err
	}
	return loaded, nil
}

// Stop waits for links that are being deleted and lets go of everything. What is in the kernel stays, and works.
func (d *Datapath) Stop(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded == nil {
		return nil
	}
	d.links.stop()
	err := d.namespace.Close()
	d.maps.set(nil)
	d.loaded.close()
	d.loaded = nil
	return errors.Join(err, d.root.Close())
}

// Links are those of the node.
func (d *Datapath) Links() Links { return &d.links }

// Maps are those in the kernel.
func (d *Datapath) Maps() Maps { return &d.maps }

// PrunePins removes the pins of programs and maps of agents before this one. What a link uses lives on.
func (d *Datapath) PrunePins() (removed []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded == nil {
		return nil, ErrNotStarted
	}
	programs, programsErr := d.loader.prune(d.loaded.digest)
	maps, mapsErr := d.loader.pruneMaps()
	return append(programs, maps...), errors.Join(programsErr, mapsErr)
}

// Status says what is loaded; it is empty before Start.
func (d *Datapath) Status() v1.Datapath {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

func (l *loaded) describe() v1.Datapath {
	status := v1.Datapath{Digest: l.digest, Adopted: l.programs.adopted, Missing: lacking()}
	for _, p := range []struct {
		name string
		*program
	}{{bpf.FromPod, l.programs.fromPod}, {bpf.ToPod, l.programs.toPod}} {
		status.Programs = append(status.Programs, v1.Program{Name: p.name, ID: p.id, Tag: p.tag})
	}
	return status
}
