package bpfarray_test

import (
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"porin.dev/porin/internal/bpfarray"
	"porin.dev/porin/internal/testutil"
)

func array(t *testing.T, valueSize, flags uint32) *ebpf.Map {
	t.Helper()
	testutil.Root(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "array", Type: ebpf.Array, KeySize: 4, ValueSize: valueSize, MaxEntries: 1000, Flags: flags})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

type value struct{ A, B, C uint32 } // 12 bytes: each has 4 bytes of padding behind it

func TestRead(t *testing.T) {
	m := array(t, 12, unix.BPF_F_MMAPABLE)
	if err := bpfarray.Mmap(m); err != nil {
		t.Fatal(err)
	}
	for _, index := range []uint32{0, 1, 500, 999} {
		want := value{index, ^index, 7}
		if err := m.Put(index, want); err != nil {
			t.Fatal(err)
		}
		if got, err := bpfarray.Read[value](m, index); err != nil || got != want {
			t.Errorf("entry %d is %v, %v; want %v", index, got, err, want)
		}
	}
	if got, err := bpfarray.Read[value](m, 2); err != nil || got != (value{}) {
		t.Errorf("an entry that was never written is %v, %v", got, err)
	}
}

func TestReadRefuses(t *testing.T) {
	m := array(t, 12, unix.BPF_F_MMAPABLE)
	if _, err := bpfarray.Read[value](m, 1000); err == nil {
		t.Error("read behind the last entry")
	}
	if _, err := bpfarray.Read[uint64](m, 0); err == nil {
		t.Error("read a value of another size")
	}
	plain := array(t, 12, 0)
	if err := bpfarray.Mmap(plain); err != nil {
		t.Errorf("a map that is not made for it: %v", err)
	}
	if _, err := bpfarray.Read[value](plain, 0); err == nil {
		t.Error("read a map that has no shared memory")
	}
}

func BenchmarkRead(b *testing.B) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "array", Type: ebpf.Array, KeySize: 4, ValueSize: 12, MaxEntries: 1000, Flags: unix.BPF_F_MMAPABLE})
	if err != nil {
		b.Skip(err)
	}
	defer m.Close()
	b.Run("shared", func(b *testing.B) {
		for b.Loop() {
			_, _ = bpfarray.Read[value](m, 5)
		}
	})
	b.Run("system call", func(b *testing.B) {
		var v value
		for b.Loop() {
			_ = m.Lookup(uint32(5), &v)
		}
	})
}
