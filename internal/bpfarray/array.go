// Package bpfarray reads arrays of BPF programs through memory that is shared with the kernel: a system call takes
// longer than all else that is done with one value.
package bpfarray

import (
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Mmap maps an array into memory if it was made for that, with BPF_F_MMAPABLE (Linux 5.5); other maps are left as they
// are. It comes before the map is used by several goroutines. The memory is released some time after the map was
// closed.
func Mmap(m *ebpf.Map) error {
	if m.Flags()&unix.BPF_F_MMAPABLE == 0 {
		return nil
	}
	if _, err := m.Memory(); err != nil {
		return fmt.Errorf("share the memory of map %s: %w", m, err)
	}
	return nil
}

// Read returns a value of an array with BPF_F_MMAPABLE. V has the layout of the map's value. As with a system call, a
// value that is being written may be read half old and half new, but not a word of it.
func Read[V any](m *ebpf.Map, index uint32) (value V, err error) {
	memory, err := m.Memory()
	if err != nil {
		return value, fmt.Errorf("read map %s: %w", m, err)
	}
	stride := (int64(m.ValueSize()) + 7) &^ 7 // array_map_alloc in kernel/bpf/arraymap.c
	size := unsafe.Sizeof(value)
	if index >= m.MaxEntries() || uint32(size) != m.ValueSize() {
		return value, fmt.Errorf("read map %s: entry %d of %d, of %d bytes instead of %d", m, index, m.MaxEntries(), size, m.ValueSize())
	}
	if _, err := memory.ReadAt(unsafe.Slice((*byte)(unsafe.Pointer(&value)), size), int64(index)*stride); err != nil {
		return value, fmt.Errorf("read map %s: %w", m, err)
	}
	return value, nil
}
