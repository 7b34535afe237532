package datapath

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
)

// deletedTraffic keeps what endpoints had counted when they went, so that the node's totals never fall while the agent
// runs.
type deletedTraffic struct {
	mu  sync.Mutex // guards sum, and an endpoint's way from the maps into it
	sum abi.Traffic
}

// retire takes an endpoint's counters out of the maps and adds them to the sum. Without an entry in the map of drops it
// has none.
func (r *deletedTraffic) addEndpoint(m *bpfMaps, id uint16) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	counted, err := m.traffic(uint32(id))
	if err == nil {
		err = m.Passed.Put(uint32(id), make([]abi.Passed, m.CPUs))
	}
	if err == nil {
		err = m.Drops.Delete(uint32(id))
	}
	if err != nil {
		return gone(err)
	}
	r.sum.Add(counted)
	return nil
}

// totals adds the sum to what is in the maps.
func (r *deletedTraffic) totals(m *bpfMaps) (abi.Traffic, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	total := r.sum
	var id uint32
	var drops []abi.Drops
	entries := m.Drops.Iterate()
	for entries.Next(&id, &drops) {
		counted, err := m.traffic(id)
		if gone(err) != nil {
			return total, err
		}
		total.Add(counted)
	}
	return total, entries.Err()
}

// traffic sums what the CPUs have counted of an endpoint.
func (m *bpfMaps) traffic(id uint32) (sum abi.Traffic, err error) {
	var drops []abi.Drops
	if err := m.Drops.Lookup(id, &drops); err != nil {
		return sum, err
	}
	var passed []abi.Passed
	if err := m.Passed.Lookup(id, &passed); err != nil {
		return sum, err
	}
	for cpu := range drops {
		sum.AddPassed(passed[cpu])
		sum.AddDrops(drops[cpu])
	}
	return sum, nil
}

func (k *kernelMaps) Traffic(id uint16) (sum abi.Traffic, err error) {
	err = k.use(func(m *bpfMaps) error {
		sum, err = m.traffic(uint32(id))
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("counters of endpoint %d: %w", id, ErrNoLink)
		}
		return err
	})
	return sum, err
}

// Unmanaged implements [Counters].
func (k *kernelMaps) Unmanaged() (sum abi.Unmanaged, err error) {
	err = k.use(func(m *bpfMaps) error {
		var counted []abi.Unmanaged
		err := m.Unmanaged.Lookup(uint32(0), &counted)
		for _, n := range counted {
			sum.Passed += n.Passed
			sum.Denied += n.Denied
		}
		return err
	})
	return sum, err
}

func (k *kernelMaps) Totals() (total abi.Traffic, err error) {
	err = k.use(func(m *bpfMaps) error {
		total, err = k.deletedTraffic.totals(m)
		return err
	})
	return total, err
}
