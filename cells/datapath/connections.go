package datapath

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"time"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/task"
)

// sweepInterval is the time between two removals of connections that are over. A visit takes some 50 ns an entry.
const sweepInterval = 10 * time.Second

// reservedPart is the part of the map of connections, one in so many, in which endpoints have their shares alone.
const reservedPart = 4

// ConnectionUse is how full the map of connections is. The programs write it; a connection without an entry goes through the stack.
type ConnectionUse struct {
	Entries, Capacity uint32
	Refused           uint32 // packets that got no entry, as there was no room
}

// Connections implements [Counters].
func (k *kernelMaps) Connections() (use ConnectionUse, err error) {
	err = k.use(func(m *bpfMaps) error {
		var sum abi.Usage
		err := m.Usage.Lookup(abi.NoEndpoint, &sum)
		use = ConnectionUse{Entries: sum.Connections, Capacity: m.Connections.MaxEntries(), Refused: sum.Refused}
		return err
	})
	return use, err
}

// shareConnections sets the room of each endpoint anew: an equal part of what is reserved.
func (m *bpfMaps) shareConnections() error {
	endpoints := uint32(0)
	if err := eachEntry(m.Links, func(uint32, []abi.Link) { endpoints++ }); err != nil {
		return err
	}
	size := m.Connections.MaxEntries()
	limits := abi.Limits{Common: size - size/reservedPart, Share: size / reservedPart / max(endpoints, 1)}
	if err := m.Limits.Put(uint32(0), limits); err != nil {
		return fmt.Errorf("share the map of connections: %w", err)
	}
	return nil
}

// SweepConnections removes the connections that are over, and shares the room among the endpoints that there are.
func (d *Datapath) SweepConnections(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.objects == nil {
		return ErrNotStarted
	}
	if _, err := sweep(d.objects.Sweep); err != nil {
		return err
	}
	return d.maps.use((*bpfMaps).shareConnections)
}

func sweep(program *ebpf.Program) (done abi.Sweep, err error) {
	out := make([]byte, binary.Size(done))
	if _, err := program.Run(&ebpf.RunOptions{Context: out, ContextOut: out}); err != nil {
		return done, fmt.Errorf("sweep connections: %w", err)
	}
	_, err = binary.Decode(out, binary.NativeEndian, &done)
	return done, err
}

func newSweepTask(d *Datapath, log *slog.Logger) *task.Task {
	return task.Every(log, task.Round{Name: "datapath-sweep-connections", Interval: sweepInterval, Run: d.SweepConnections})
}
