package datapath_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"

	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/testutil"
)

// takeOver is what an agent does after its start, on maps that lack nothing.
func (n *node) takeOver(t *testing.T, pods ...*pod) {
	t.Helper()
	for _, p := range pods {
		if replaced := strings.Join(n.restore(t, p), "; "); strings.Contains(replaced, "map entry") {
			t.Errorf("a map had lost something: %s", replaced)
		}
	}
	_, err := n.step.Prune(context.Background(), endpoints(pods...))
	must(t, err)
}

func TestResizeUnderTraffic(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	traffic := startPingPong(t, a, b)
	traffic.goOn(t)
	before := n.inspect(t)
	for _, size := range []uint32{8192, 2, 4096} {
		counted := n.traffic(t, a).FromPod.Packets
		n.stop(t)
		n.cfg.MaxEndpoints = size
		n.start(t)
		if got := n.traffic(t, a).FromPod.Packets; got < counted || counted == 0 {
			t.Errorf("counters fell from %d to %d", counted, got)
		}
		traffic.goOn(t) // with old programs and maps
		n.takeOver(t, a, b)
		traffic.goOn(t)
		after := n.inspect(t)
		want := map[string]uint32{bpf.Endpoints: 2 * size, bpf.Links: size, bpf.Drops: size + 1}
		for i, m := range after.Maps {
			if most, resized := want[m.Name]; resized && (m.MaxEntries != most || m.Entries != before.Maps[i].Entries) {
				t.Errorf("map %+v, want %d of %d entries", m, before.Maps[i].Entries, most)
			}
		}
		wantGone(t, before, after)
		before = after
	}
	if sent, lost := traffic.stop(); lost > 0 || sent == 0 {
		t.Errorf("%d of %d packets were lost", lost, sent)
	}
	if left, err := os.ReadDir(n.cfg.BPFRoot); err != nil || len(left) != 2 {
		t.Errorf("below the root: %v, error %v, want maps and programs", left, err)
	}
}

// wantGone waits for the kernel to forget the programs, and the maps, that are not used any more.
func wantGone(t *testing.T, was, is datapath.Inspection) {
	t.Helper()
	used := map[uint32]bool{}
	for _, p := range is.Maps {
		used[p.ID] = true
	}
	testutil.Eventually(t, func() error {
		for _, p := range was.Programs {
			if program, err := ebpf.NewProgramFromID(ebpf.ProgramID(p.ID)); !errors.Is(err, fs.ErrNotExist) {
				program.Close()
				return errors.New("program " + p.Name + " is there")
			}
		}
		for _, p := range was.Maps {
			if used[p.ID] {
				continue
			}
			if m, err := ebpf.NewMapFromID(ebpf.MapID(p.ID)); !errors.Is(err, fs.ErrNotExist) {
				m.Close()
				return errors.New("map " + p.Name + " is there")
			}
		}
		return nil
	})
}

// interrupted is a context that ends when it was asked so often, as an agent may that is killed.
type interrupted struct {
	context.Context
	asked int
}

func (i *interrupted) Err() error {
	if i.asked--; i.asked < 0 {
		return context.Canceled
	}
	return nil
}

// TestResizeInterrupted: at whatever operation a start ends, the next one finds every entry, of whichever size it is.
// With FULL=1 it is each of them, else each fourth one, others in each run.
func TestResizeInterrupted(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	step, counted := 4, uint64(0)
	if testutil.Full() {
		step = 1
	}
	points := rand.IntN(step)
	for more := true; more; points += step {
		for _, next := range []uint32{16, 4096} { // to the end, or back
			n.stop(t)
			n.cfg.MaxEndpoints = 16
			d, err := datapath.New(n.cfg, slog.New(slog.DiscardHandler))
			must(t, err)
			err = n.Do(func() error { return d.Start(&interrupted{context.Background(), points}) })
			if more = err != nil; more && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
			must(t, d.Stop(t.Context()))
			must(t, ping(a.Namespace, b.endpoint.Addresses.IPv4))
			n.cfg.MaxEndpoints = next
			n.start(t)
			if got := n.traffic(t, a).FromPod.Packets; got < counted {
				t.Errorf("after %d operations counters fell from %d to %d", points, counted, got)
			}
			n.takeOver(t, a, b)
			wantState(t, &realKernel{node: n}, attached(2))
			for _, m := range n.inspect(t).Maps {
				if m.Name == bpf.Links && m.MaxEntries != next {
					t.Errorf("after %d operations: map %+v, want the size %d", points, m, next)
				}
			}
			must(t, ping(a.Namespace, b.endpoint.Addresses.IPv4))
			if _, err := os.Stat(filepath.Join(n.cfg.BPFRoot, "staging")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after %d operations the staging folder is left: %v", points, err)
			}
			counted = n.traffic(t, a).FromPod.Packets
			n.stop(t)
			n.cfg.MaxEndpoints = 4096
			n.start(t)
			n.takeOver(t, a, b)
		}
	}
	if points < 13 { // four operations a map, and one before
		t.Errorf("interrupted at %d points", points)
	}
}

func TestResizeRefused(t *testing.T) {
	rows := []struct {
		name    string
		size    uint32
		prepare func(t *testing.T, n *node)
		want    string
	}{
		{"too many entries", 1, func(*testing.T, *node) {}, "entries, and there would be room for "},
		{"another layout, of the same size", 4096, plantOldLayout, "ValueSize"},
		{"another layout, of another size", 8192, plantOldLayout, "ValueSize"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			n := newNode(t)
			a, b := n.newPod(t, 1), n.newPod(t, 2)
			n.attach(t, a, b)
			n.stop(t)
			row.prepare(t, n)
			before := n.inspect(t)
			n.cfg.MaxEndpoints = row.size
			err := n.tryStart(t, func(*datapath.Datapath) {})
			if !errors.Is(err, loader.ErrIncompatible) || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "drain the node") {
				t.Errorf("error %v, want %v, %q and what to do", err, loader.ErrIncompatible, row.want)
			}
			if diff := cmp.Diff(before, n.inspect(t)); diff != "" {
				t.Errorf("what is in the kernel (-before +after):\n%s", diff)
			}
			must(t, ping(a.Namespace, b.endpoint.Addresses.IPv4))
		})
	}
}

// TestStartCopiesMapsWithOtherFlags: an earlier agent made these maps without BPF_F_MMAPABLE.
func TestStartCopiesMapsWithOtherFlags(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	n.stop(t)
	before := map[string]string{}
	for _, name := range []string{bpf.Slots, bpf.Policies, bpf.ActiveCopy} {
		pin := filepath.Join(n.cfg.BPFRoot, "maps", name)
		from, err := ebpf.LoadPinnedMap(pin, nil)
		must(t, err)
		defer from.Close()
		to, err := ebpf.NewMap(&ebpf.MapSpec{
			Type: from.Type(), KeySize: from.KeySize(), ValueSize: from.ValueSize(), MaxEntries: from.MaxEntries(), Name: name,
		})
		must(t, err)
		defer to.Close()
		value := bytes.Repeat([]byte{7}, int(from.ValueSize()))
		must(t, to.Put(uint32(0), value))
		before[name] = string(value)
		must(t, os.Remove(pin))
		must(t, to.Pin(pin))
	}
	n.start(t)
	for name, want := range before {
		var got []byte
		m := n.pinned(t, name)
		if must(t, m.Lookup(uint32(0), &got)); string(got) != want || m.Flags() == 0 {
			t.Errorf("%s with flags %x has %x, want %x", name, m.Flags(), got, want)
		}
	}
	must(t, ping(a.Namespace, b.endpoint.Addresses.IPv4))
}

// plantOldLayout pins a map as an agent with other types would have made it.
func plantOldLayout(t *testing.T, n *node) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 4096, Flags: 1, Name: bpf.Links})
	must(t, err)
	defer m.Close()
	pin := filepath.Join(n.cfg.BPFRoot, "maps", bpf.Links)
	must(t, os.Remove(pin))
	must(t, m.Pin(pin))
}

// Drops without an endpoint are counted on, too.
func TestResizeNodeCounters(t *testing.T) {
	n := newNode(t)
	counted := make([]abi.Drops, ebpf.MustPossibleCPU())
	counted[0].ByReason[abi.DropNoEndpoint] = 7
	must(t, n.pinned(t, bpf.Drops).Put(abi.NoEndpoint, counted))
	n.stop(t)
	n.cfg.MaxEndpoints *= 2
	n.start(t)
	got, err := n.datapath.Counters().Totals()
	if must(t, err); got.Drops[abi.DropNoEndpoint] != 7 {
		t.Errorf("totals %+v, want 7 drops", got)
	}
}
