package datapath_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/testutil"
)

// expireAll lets the time of all connections pass.
func (n *node) expireAll(t *testing.T) {
	t.Helper()
	connections := n.pinned(t, bpf.Connections)
	all := map[abi.ConnectionKey]abi.Connection{}
	var key abi.ConnectionKey
	var c abi.Connection
	entries := connections.Iterate()
	for entries.Next(&key, &c) {
		all[key] = c
	}
	must(t, entries.Err())
	for key, c := range all {
		c.Expires = 0
		must(t, connections.Put(key, c))
	}
}

// pinnedMap describes a map and does not keep it open.
func (n *node) pinnedMap(t *testing.T, name string) loader.PinnedMap {
	t.Helper()
	for _, m := range n.inspect(t).Maps {
		if m.Name == name {
			return m
		}
	}
	t.Fatalf("no map %s", name)
	return loader.PinnedMap{}
}

// restart is an upgrade or a restart of the agent.
func (n *node) restart(t *testing.T, change func(*datapath.Datapath)) {
	t.Helper()
	n.stop(t)
	must(t, n.tryStart(t, change))
}

func takeOverAtOnce(d *datapath.Datapath) { d.TakeOverAfter(time.Millisecond) }

// Without an agent the kernel removes connections that are over, and not the others.
func TestConnectionsExpireWithoutAgent(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	must(t, ping(a.Namespace, b.endpoint.Addresses.IPv4))
	must(t, ping(b.Namespace, a.endpoint.Addresses.IPv6))
	n.restart(t, takeOverAtOnce)
	must(t, ping(a.Namespace, b.endpoint.Addresses.IPv4)) // a connection that no sweep has seen
	n.stop(t)
	if was := n.pinnedMap(t, bpf.Connections).Entries; was < 4 {
		t.Fatalf("%d entries", was)
	}
	n.expireAll(t)
	testutil.Eventually(t, func() error {
		if left := n.pinnedMap(t, bpf.Connections).Entries; left > 0 {
			return fmt.Errorf("%d connections are left", left)
		}
		return nil
	})
	must(t, ping(a.Namespace, b.endpoint.Addresses.IPv4))
	n.start(t)
	wantConnections(t, n, 2)
}

// sweepers are the programs in the kernel that use the timer's map.
func sweepers(t *testing.T, expirer uint32) (ids []ebpf.ProgramID) {
	t.Helper()
	for id := ebpf.ProgramID(0); ; {
		var err error
		if id, err = ebpf.ProgramGetNextID(id); errors.Is(err, fs.ErrNotExist) {
			return ids
		}
		must(t, err)
		program, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		must(t, err)
		info, err := program.Info()
		must(t, err)
		if used, _ := info.MapIDs(); program.Type() == ebpf.Syscall && slices.Contains(used, ebpf.MapID(expirer)) {
			ids = append(ids, id)
		}
		program.Close()
	}
}

// wantSweepers waits for the kernel to release unused sweepers.
func wantSweepers(t *testing.T, expirer uint32, want int) (ids []ebpf.ProgramID) {
	t.Helper()
	testutil.Eventually(t, func() error {
		if ids = sweepers(t, expirer); len(ids) != want {
			return fmt.Errorf("programs %v use the timer, want %d", ids, want)
		}
		return nil
	})
	return ids
}

// The timer runs the program of the last agent, and of no other, and ends with the last pin.
func TestTimerHasOneProgram(t *testing.T) {
	n := newNode(t)
	expirer := n.pinnedMap(t, bpf.Expirer).ID
	first := wantSweepers(t, expirer, 1)
	n.restart(t, (*datapath.Datapath).Upgrade)
	upgraded := wantSweepers(t, expirer, 1)
	if slices.Equal(first, upgraded) {
		t.Errorf("the timer runs program %v, as before the upgrade", first)
	}
	n.cfg.MaxConnections /= 2 // other maps
	n.restart(t, takeOverAtOnce)
	wantSweepers(t, expirer, 1)
	n.stop(t)
	wantSweepers(t, expirer, 1)
	must(t, os.RemoveAll(n.cfg.BPFRoot))
	wantSweepers(t, expirer, 0)
}
