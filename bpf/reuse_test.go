package bpf_test

import (
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/internal/testutil"
)

// flips are two connections that take each other's place, and memory, again and again.
type flips struct {
	Key        abi.ConnectionKey
	Connection abi.Connection
	OtherKey   abi.ConnectionKey
	Other      abi.Connection
}

// flipper returns a program that deletes the first connection and makes the other, and then the reverse.
func (f *fixture) flipper(t *testing.T, of flips) *ebpf.Program {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(of)), MaxEntries: 1})
	if err == nil {
		t.Cleanup(func() { m.Close() })
		err = m.Put(uint32(0), of)
	}
	if err != nil {
		t.Fatal(err)
	}
	// The stack has the map's key, and r6 is its value.
	code := asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word), asm.LoadMapPtr(asm.R1, m.FD()), asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(), asm.JEq.Imm(asm.R0, 0, "end"), asm.Mov.Reg(asm.R6, asm.R0),
	}
	at := func(r asm.Register, offset uintptr) asm.Instructions {
		return asm.Instructions{asm.Mov.Reg(r, asm.R6), asm.Add.Imm(r, int32(offset))}
	}
	remove := func(key uintptr) {
		code = append(append(code, asm.LoadMapPtr(asm.R1, f.objects.Connections.FD())), at(asm.R2, key)...)
		code = append(code, asm.FnMapDeleteElem.Call())
	}
	insert := func(key, connection uintptr) {
		code = append(append(code, asm.LoadMapPtr(asm.R1, f.objects.Connections.FD()), asm.Mov.Imm(asm.R4, 0)), at(asm.R2, key)...)
		code = append(append(code, at(asm.R3, connection)...), asm.FnMapUpdateElem.Call())
	}
	remove(unsafe.Offsetof(of.Key))
	insert(unsafe.Offsetof(of.OtherKey), unsafe.Offsetof(of.Other))
	remove(unsafe.Offsetof(of.OtherKey))
	insert(unsafe.Offsetof(of.Key), unsafe.Offsetof(of.Connection))
	code = append(code, asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return())
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, Instructions: code, License: "GPL"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	return program
}

// onCPU keeps the calling goroutine on a CPU, until it ends.
func onCPU(t *testing.T, cpu int) {
	t.Helper()
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		t.Error(err)
	}
}

// TestEntryReusedWhileRead: a connection with another pod gets the memory of a deleted entry while a packet
// is on its way. None of alice's packets to bob gets to eve.
func TestEntryReusedWhileRead(t *testing.T) {
	const repeat = 250
	measure := 2 * time.Second
	if testutil.Full() {
		measure = 20 * time.Second
	}
	f := load(t)
	f.reset(t)
	f.eve.id = 3
	for _, p := range []*party{&f.bob, &f.eve} {
		p.hostMAC = f.alice.mac // so that a delivered frame can be delivered again
		f.register(t, *p)
	}
	var of flips
	entry := func(to party) (abi.ConnectionKey, abi.Connection) {
		l := newConversation(f, false, true)
		l.bob = netip.AddrPortFrom(to.ip4, l.bob.Port())
		l.send(t, packet{"alice", datagram, deliver})
		key, _ := l.keys()
		return key, f.connections(t)[key]
	}
	of.Key, of.Connection = entry(f.bob)
	of.OtherKey, of.Other = entry(f.eve)
	if err := f.objects.Connections.Delete(of.OtherKey); err != nil {
		t.Fatal(err)
	}
	l := newConversation(f, false, true)
	f.limit(t, abi.Limits{}) // packets make no entries
	flipper := f.flipper(t, of)
	in := mangle(l.frame(f.alice.mac, f.alice.hostMAC, l.alice, l.bob, datagram), 14+8, 255)

	var group sync.WaitGroup
	var stopped atomic.Bool
	nflips, packets := 0, 0
	group.Go(func() {
		onCPU(t, runtime.NumCPU()-1)
		for !stopped.Load() {
			if _, err := flipper.Run(&ebpf.RunOptions{Data: in, Repeat: 10000}); err != nil {
				t.Error(err)
				return
			}
			nflips += 10000
		}
	})
	group.Go(func() {
		onCPU(t, 0)
		defer stopped.Store(true)
		for end := time.Now().Add(measure); time.Now().Before(end); packets += repeat {
			err := f.netns.Do(func() error {
				_, err := f.objects.FromPod.Run(&ebpf.RunOptions{Data: in, Context: skBuff{Ifindex: uint32(f.alice.index)}, Repeat: repeat})
				return err
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	group.Wait()
	toBob, toEve := f.passedTo(t, f.bob), f.passedTo(t, f.eve)
	t.Logf("%d of %d packets delivered to bob, while the entry's memory changed hands %d times", toBob, packets, 2*nflips)
	if toBob == 0 || toEve > 1 { // with the first one
		t.Errorf("%d packets went to bob, and %d to eve", toBob, toEve-1)
	}
}

// passedTo counts the packets that a pod got.
func (f *fixture) passedTo(t *testing.T, p party) (n uint64) {
	t.Helper()
	var passed []abi.Passed
	if err := f.objects.Passed.Lookup(uint32(p.id), &passed); err != nil {
		t.Fatal(err)
	}
	for _, one := range passed {
		n += one.ToPod.Packets
	}
	return n
}
