package datapath

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/policy/names"
)

// sweepInterval is the time between two removals of connections that are over. A visit takes some 50 ns an entry.
const sweepInterval = 10 * time.Second

// takeOverAfter is the time without a sweep after which the kernel removes connections by itself.
const takeOverAfter = 3 * sweepInterval

// reservedPart is the part of the map of connections, one in so many, in which endpoints have their shares alone.
const reservedPart = 4

// ConnectionUse is how full the map of connections is. The programs write it; a connection without an entry goes
// through the stack.
type ConnectionUse struct {
	Entries, Capacity uint32
	Refused           uint32 // packets that got no entry, as there was no room
	Corrected         uint64 // counts, of an endpoint or of all, that were wrong and were corrected since Start
}

// Connections implements [Counters].
func (k *kernelMaps) Connections() (use ConnectionUse, err error) {
	err = k.use(func(m *bpfMaps) error {
		var sum abi.Usage
		err := m.Usage.Lookup(abi.NoEndpoint, &sum)
		use = ConnectionUse{Entries: sum.Connections(), Capacity: m.Connections.MaxEntries(), Refused: sum.Refused, Corrected: k.corrected.Load()}
		return err
	})
	return use, err
}

// openConnections is the [policy.Connections].
type openConnections struct{ maps *kernelMaps }

// OpenConnections returns the [policy.Connections] of the map of connections.
func (d *Datapath) OpenConnections() policy.Connections { return openConnections{&d.maps} }

// InUse implements [policy.Connections]. It counts answered connections that the endpoint has opened, until the sweep
// removes their entry.
func (c openConnections) InUse(addresses map[names.Use]bool) error {
	return c.maps.use(func(m *bpfMaps) error {
		return eachEntry(m.Connections, func(key abi.ConnectionKey, values []abi.Connection) {
			const opened = abi.StateOpenedHere | abi.StateReplied
			if values[0].State&opened != opened {
				return
			}
			use := names.Use{Endpoint: values[0].Id, Addr: key.Remote.IP()}
			if _, asked := addresses[use]; asked {
				addresses[use] = true
			}
		})
	})
}

// shareConnections sets the room of each endpoint: an equal part of the reserved room.
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

// SweepConnections removes the connections that are over, corrects what is counted of the others, and shares the room
// among the endpoints that there are.
func (d *Datapath) SweepConnections(context.Context) error {
	var done abi.Sweep
	err := retryENOMEM(func() (err error) { // Linux 6.18 may lack it for a moment, when the timer is made
		done, err = d.sweeper.run()
		return err
	})
	if err != nil {
		return err
	}
	if done.Corrected > 0 {
		d.maps.corrected.Add(uint64(done.Corrected))
		d.log.Info("count of connections corrected", "counts", done.Corrected)
	}
	return d.maps.use((*bpfMaps).shareConnections)
}

// sweeper runs the program that removes old connections.
type sweeper struct {
	mu      sync.Mutex    // guards the field below; held while the program runs
	program *ebpf.Program // nil unless started

	takeOverAfter time.Duration
}

// set gives it the program, or takes it away with nil.
func (s *sweeper) set(program *ebpf.Program) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.program = program
}

func (s *sweeper) run() (done abi.Sweep, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.program == nil {
		return done, ErrNotStarted
	}
	out, err := binary.Append(nil, binary.NativeEndian, abi.Sweep{WaitMs: uint32(s.takeOverAfter.Milliseconds())})
	if err != nil {
		return done, err
	}
	code, err := s.program.Run(&ebpf.RunOptions{Context: out, ContextOut: out})
	if err == nil && code != 0 {
		err = unix.Errno(-int32(code)) // of the timer
	}
	if err != nil {
		return done, fmt.Errorf("sweep connections: %w", err)
	}
	_, err = binary.Decode(out, binary.NativeEndian, &done)
	return done, err
}
