package loader_test

import (
	"context"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/testutil"
)

func TestMain(m *testing.M) { testutil.Main(m, testutil.NoLeaks()) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// node has a BPF root, which agents of different configurations use one after the other.
type node struct{ cfg loader.Config }

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{loader.Config{Root: testutil.BPFFS(t) + "/porin", MaxEndpoints: 16, MaxConnections: 1024, MaxAddresses: 1024, Object: bpf.EndpointObject()}}
}

func (n *node) loader(t *testing.T) *loader.Loader {
	return loader.New(n.cfg, slog.New(slog.NewTextHandler(t.Output(), nil)))
}

func anyLink(*loader.Programs) error { return nil }

// load returns what an agent has after its start, until the test ends or closes it.
func (n *node) load(t *testing.T) *loader.Objects {
	t.Helper()
	objects, err := n.loader(t).Load(t.Context(), anyLink)
	must(t, err)
	t.Cleanup(objects.Close) // twice is fine
	return objects
}

func tags(o *loader.Objects) map[string]string {
	return map[string]string{bpf.FromPod: o.Programs.FromPod.Tag, bpf.ToPod: o.Programs.ToPod.Tag, bpf.ToUplink: o.Programs.ToUplink.Tag, bpf.FromUplink: o.Programs.FromUplink.Tag}
}

func TestLoadAdopts(t *testing.T) {
	n := newNode(t)
	first := n.load(t)
	if first.Programs.Adopted {
		t.Error("the first start has adopted programs")
	}
	first.Close()
	second := n.load(t)
	if !second.Programs.Adopted || second.Digest != first.Digest || second.Programs.FromPod.ID != first.Programs.FromPod.ID {
		t.Errorf("loaded %+v, want it to adopt %+v", second, first)
	}
}

// TestLoadRefusesToAdopt pins what is not what the agent would load.
func TestLoadRefusesToAdopt(t *testing.T) {
	rows := []struct {
		name   string
		tamper func(t *testing.T, n *node, dir string)
	}{
		{"a pin is missing", func(t *testing.T, _ *node, dir string) {
			must(t, os.Remove(filepath.Join(dir, bpf.ToPod)))
		}},
		{"another program bears the name", func(t *testing.T, _ *node, dir string) {
			must(t, os.Remove(filepath.Join(dir, bpf.FromPod)))
			other, err := ebpf.LoadPinnedProgram(filepath.Join(dir, bpf.ToPod), nil)
			must(t, err)
			defer other.Close()
			must(t, other.Pin(filepath.Join(dir, bpf.FromPod)))
		}},
		{"it was configured differently", func(t *testing.T, n *node, dir string) {
			n.plant(t, dir, func(spec *ebpf.CollectionSpec) {
				must(t, spec.Variables[bpf.GatewayIPv4].Set([4]byte{169, 254, 9, 9}))
			}, bpf.MapNames()...)
		}},
		{"one of them was loaded when the node's connection tracking could not be asked", func(t *testing.T, n *node, dir string) {
			digest, err := hex.DecodeString(filepath.Base(dir))
			must(t, err)
			n.plant(t, dir, func(spec *ebpf.CollectionSpec) {
				must(t, spec.Variables[bpf.GatewayIPv4].Set(v1.GatewayIPv4.As4()))
				must(t, spec.Variables[bpf.KeyQueueMask].Set(n.cfg.MaxConnections-1))
				must(t, spec.Variables[bpf.Digest].Set(digest))
			}, bpf.MapNames()...)
		}},
		{"it uses other maps", func(t *testing.T, n *node, dir string) {
			n.plant(t, dir, func(*ebpf.CollectionSpec) {}, bpf.Links, bpf.Drops)
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			n := newNode(t)
			before := n.load(t)
			before.Close()
			row.tamper(t, n, filepath.Join(n.cfg.Root, "programs", before.Digest))
			after := n.load(t)
			if after.Programs.Adopted || !maps.Equal(tags(before), tags(after)) {
				t.Errorf("loaded %+v, want programs like %v", after.Programs, tags(before))
			}
			after.Close()
			if !n.load(t).Programs.Adopted {
				t.Error("what was loaded instead is not adopted")
			}
		})
	}
}

// plant pins a from_pod that is not what the agent would load, on the named ones of the pinned maps.
func (n *node) plant(t *testing.T, dir string, change func(*ebpf.CollectionSpec), maps ...string) {
	t.Helper()
	spec, err := bpf.Endpoint()
	must(t, err)
	change(spec)
	replacements := map[string]*ebpf.Map{}
	for _, name := range maps {
		m, err := ebpf.LoadPinnedMap(filepath.Join(n.cfg.Root, "maps", name), nil)
		must(t, err)
		defer m.Close()
		replacements[name] = m
	}
	for name, m := range spec.Maps {
		if m.MaxEntries == 0 {
			m.MaxEntries = 16
		}
		if pinned, ok := replacements[name]; ok {
			m.MaxEntries = pinned.MaxEntries()
		}
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: replacements})
	must(t, err)
	defer collection.Close()
	pin := filepath.Join(dir, bpf.FromPod)
	must(t, os.Remove(pin))
	must(t, collection.Programs[bpf.FromPod].Pin(pin))
}

// TestLoadCannotAttach: the kernel takes the programs, and refuses to attach them.
func TestLoadCannotAttach(t *testing.T) {
	n := newNode(t)
	refused := errors.New("refused")
	if _, err := n.loader(t).Load(t.Context(), func(*loader.Programs) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("error %v, want %v", err, refused)
	}
	if n.load(t).Programs.Adopted {
		t.Error("the programs that could not be attached were pinned")
	}
}

func TestLoadResizesMaps(t *testing.T) {
	n := newNode(t)
	small := n.load(t)
	counted := make([]abi.Passed, small.Maps.CPUs)
	counted[0].FromPod.Packets = 7
	dropped := make([]abi.Drops, small.Maps.CPUs)
	dropped[0].ByReason[abi.DropARP] = 3
	must(t, small.Maps.Links.Put(uint32(3), abi.Link{Id: 1}))
	must(t, small.Maps.Passed.Put(uint32(1), counted))
	must(t, small.Maps.Drops.Put(uint32(1), dropped))
	small.Close()
	n.cfg.MaxEndpoints = 32
	large := n.load(t)
	var link abi.Link
	if err := large.Maps.Links.Lookup(uint32(3), &link); err != nil || link.Id != 1 || large.Maps.Links.MaxEntries() != 32 {
		t.Errorf("link %+v of %d entries, error %v", link, large.Maps.Links.MaxEntries(), err)
	}
	var passed []abi.Passed
	if err := large.Maps.Passed.Lookup(uint32(1), &passed); err != nil || passed[0].FromPod.Packets != 7 {
		t.Errorf("counters %+v, error %v", passed, err)
	}
	var drops []abi.Drops
	if err := large.Maps.Drops.Lookup(uint32(1), &drops); err != nil || drops[0].ByReason[abi.DropARP] != 3 {
		t.Errorf("drops %+v, error %v", drops, err)
	}
	if removed, err := n.loader(t).PrunePins(large); err != nil || len(removed) != 1 || !strings.HasPrefix(removed[0], "pinned programs ") {
		t.Errorf("removed %q, error %v, want the programs on the small maps", removed, err)
	}
}

// TestLoadSmallerThanNumbers: there are few endpoints, and one has a number that has no place in smaller maps.
func TestLoadSmallerThanNumbers(t *testing.T) {
	n := newNode(t)
	large := n.load(t)
	must(t, large.Maps.Links.Put(uint32(3), abi.Link{Id: 12}))
	large.Close()
	n.cfg.MaxEndpoints = 11
	if _, err := n.loader(t).Load(t.Context(), anyLink); !errors.Is(err, loader.ErrIncompatible) || !strings.Contains(err.Error(), "--max-endpoints") {
		t.Errorf("error %v, want ErrIncompatible, and what to do", err)
	}
	n.cfg.MaxEndpoints = 12
	n.load(t)
}

// TestLoadResizesAddresses: what policies know of addresses goes to the map of another size, unless it holds too much.
func TestLoadResizesAddresses(t *testing.T) {
	n := newNode(t)
	small := n.load(t)
	for i := range uint32(1500) {
		must(t, small.Maps.Addresses.Put(abi.AddressKey{Addr: abi.AddrOf(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))}, i))
	}
	small.Close()
	n.cfg.MaxAddresses *= 2
	large := n.load(t)
	var class uint32
	err := large.Maps.Addresses.Lookup(abi.AddressKey{Addr: abi.AddrOf(netip.MustParseAddr("10.0.1.1"))}, &class)
	if err != nil || class != 257 || large.Maps.Addresses.MaxEntries() != abi.PolicyCopies*n.cfg.MaxAddresses {
		t.Errorf("class %d in a map of %d, error %v", class, large.Maps.Addresses.MaxEntries(), err)
	}
	large.Close()
	n.cfg.MaxAddresses = 512
	if _, err := n.loader(t).Load(t.Context(), anyLink); !errors.Is(err, loader.ErrIncompatible) || !strings.Contains(err.Error(), "--datapath-max-addresses") {
		t.Errorf("%v, want that the flag is too small", err)
	}
	n.cfg.MaxAddresses = 1024
}

// TestLoadResizesConnections: the map of connections is replaced, and its counters, too.
func TestLoadResizesConnections(t *testing.T) {
	n := newNode(t)
	small := n.load(t)
	must(t, small.Maps.Connections.Put(abi.ConnectionKey{Ifindex: 3}, abi.Connection{Id: 1, Charged: 1}))
	must(t, small.Maps.Usage.Put(abi.NoEndpoint, abi.Usage{Inserted: 1}))
	small.Close()
	n.cfg.MaxConnections *= 2
	large := n.load(t)
	var usage abi.Usage
	if err := large.Maps.Usage.Lookup(abi.NoEndpoint, &usage); err != nil || usage.Connections() != 0 || large.Maps.Connections.MaxEntries() != n.cfg.MaxConnections {
		t.Errorf("%d entries are counted in a map of %d, error %v", usage.Connections(), large.Maps.Connections.MaxEntries(), err)
	}
	var c abi.Connection
	if err := large.Maps.Connections.Lookup(abi.ConnectionKey{Ifindex: 3}, &c); !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Errorf("an entry of the small map is in the large one, error %v", err)
	}
}

func TestPrunePins(t *testing.T) {
	n := newNode(t)
	l, own := n.loader(t), n.load(t)
	n.cfg.Object = append([]byte("another"), n.cfg.Object...)
	other := n.load(t)
	must(t, os.Mkdir(filepath.Join(n.cfg.Root, "staging"), 0o700))
	for _, name := range []string{"maps/policy", "staging/links"} {
		m, err := own.Maps.Links.Clone()
		must(t, err)
		must(t, m.Pin(filepath.Join(n.cfg.Root, name)))
		must(t, m.Close())
	}
	for _, want := range [][]string{{"pinned programs " + other.Digest, "pinned map maps/policy", "pinned map staging/links"}, nil} {
		if removed, err := l.PrunePins(own); err != nil || !slices.Equal(removed, want) {
			t.Errorf("removed %q, error %v, want %q", removed, err, want)
		}
	}
	own.Close()
	n.cfg.Object = n.cfg.Object[len("another"):]
	if again := n.load(t); !again.Programs.Adopted {
		t.Error("own programs are not adopted")
	}
}

func TestLockOutsideBPFFS(t *testing.T) {
	n := newNode(t)
	for _, root := range []string{t.TempDir(), filepath.Join(t.TempDir(), "not", "there")} {
		n.cfg.Root = root
		_, err := n.loader(t).Lock(t.Context())
		if !errors.Is(err, loader.ErrNoBPFFS) || !strings.Contains(err.Error(), "mount -t bpf bpf "+filepath.Dir(root)) {
			t.Errorf("error %v, want %v, and how to mount one", err, loader.ErrNoBPFFS)
		}
	}
}

func TestLockTaken(t *testing.T) {
	n := newNode(t)
	root, err := n.loader(t).Lock(t.Context())
	must(t, err)
	impatient, leave := context.WithCancel(t.Context())
	leave()
	if _, err := n.loader(t).Lock(impatient); !errors.Is(err, loader.ErrRootInUse) {
		t.Errorf("error %v, want %v", err, loader.ErrRootInUse)
	}
	must(t, root.Close())
	again, err := n.loader(t).Lock(t.Context())
	must(t, err)
	must(t, again.Close())
}
