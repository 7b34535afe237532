package datapath

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf/abi"
)

// retired keeps what endpoints had counted when they went, so that the node's totals never fall while the agent runs.
type retired struct {
	mu  sync.Mutex // guards sum, and an endpoint's way from the map into it
	sum abi.Traffic
}

// retire takes an endpoint's counters out of the map and adds them to the sum.
func (r *retired) retire(traffic *ebpf.Map, id uint16) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	counted, err := sumCPUs(traffic, uint32(id))
	if err == nil {
		err = traffic.Delete(uint32(id))
	}
	if err != nil {
		return gone(err)
	}
	r.sum.Add(counted)
	return nil
}

// totals adds the sum to what is in the map.
func (r *retired) totals(traffic *ebpf.Map) (abi.Traffic, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	total := r.sum
	var id uint32
	var perCPU []abi.Traffic
	entries := traffic.Iterate()
	for entries.Next(&id, &perCPU) {
		for _, counted := range perCPU {
			total.Add(counted)
		}
	}
	return total, entries.Err()
}

func sumCPUs(traffic *ebpf.Map, id uint32) (sum abi.Traffic, err error) {
	var perCPU []abi.Traffic
	if err := traffic.Lookup(id, &perCPU); err != nil {
		return sum, err
	}
	for _, counted := range perCPU {
		sum.Add(counted)
	}
	return sum, nil
}

func (k *kernelMaps) Traffic(id uint16) (sum abi.Traffic, err error) {
	err = k.use(func(m *bpfMaps) error {
		sum, err = sumCPUs(m.Traffic, uint32(id))
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("counters of endpoint %d: %w", id, ErrNoLink)
		}
		return err
	})
	return sum, err
}

func (k *kernelMaps) Totals() (total abi.Traffic, err error) {
	err = k.use(func(m *bpfMaps) error {
		total, err = k.retired.totals(m.Traffic)
		return err
	})
	return total, err
}
