package datapath_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"porin.dev/porin/bpf"
	"porin.dev/porin/cells/datapath"
	"porin.dev/porin/internal/testutil"
)

func TestRestartAdoptsWhatIsThere(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	if err := ping(a.Namespace, b.endpoint.Addresses.IPv4); err != nil {
		t.Fatal(err)
	}
	before, status := n.inspect(t), n.datapath.Status()
	if status.Adopted || len(status.Programs) != 2 {
		t.Errorf("status of the first start = %+v", status)
	}
	n.stop(t)
	if err := ping(a.Namespace, b.endpoint.Addresses.IPv4); err != nil {
		t.Errorf("while no agent runs: %v", err)
	}
	n.start(t)
	for _, p := range []*pod{a, b} {
		if _, err := n.step.Restore(context.Background(), p.endpoint); err != nil {
			t.Fatal(err)
		}
	}
	status.Adopted = true
	if diff := cmp.Diff(status, n.datapath.Status()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, n.inspect(t), cmpopts.IgnoreFields(datapath.PinnedProgram{}, "Loaded")); diff != "" {
		t.Errorf("what is in the kernel (-before +after):\n%s", diff)
	}
	counted, err := n.datapath.Maps().Traffic(a.endpoint.ID)
	if err != nil || counted.FromPod.Packets < 2 {
		t.Errorf("counted %+v, error %v, want what was before as well", counted, err)
	}
}

func TestUpgradeReplacesProgramsAndKeepsMaps(t *testing.T) {
	n := newNode(t)
	a, b := n.newPod(t, 1), n.newPod(t, 2)
	n.attach(t, a, b)
	before := n.inspect(t)
	n.stop(t)
	if err := n.tryStart(t, (*datapath.Datapath).Upgrade); err != nil {
		t.Fatal(err)
	}
	for _, p := range []*pod{a, b} {
		if _, err := n.step.Restore(context.Background(), p.endpoint); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.step.Prune(context.Background(), endpoints(a, b)); err != nil {
		t.Fatal(err)
	}
	after := n.inspect(t)
	if diff := cmp.Diff(before.Maps, after.Maps); diff != "" {
		t.Errorf("maps (-before +after):\n%s", diff)
	}
	if len(after.Programs) != 2 || after.Programs[0].Digest == before.Programs[0].Digest {
		t.Errorf("programs = %+v, want the two of the upgrade alone", after.Programs)
	}
	byID := map[uint32]string{}
	for _, p := range after.Programs {
		byID[p.ID] = p.Name
	}
	if len(after.Attachments) != 4 {
		t.Errorf("attachments = %+v, want one each way of two links", after.Attachments)
	}
	for _, at := range after.Attachments {
		if byID[at.ProgramID] != at.Name {
			t.Errorf("%+v is no program of the upgrade", at)
		}
	}
	if err := ping(a.Namespace, b.endpoint.Addresses.IPv6); err != nil {
		t.Error(err)
	}
}

func TestOnlyOurProgramsAreAdopted(t *testing.T) {
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
			}, bpf.Links, bpf.Endpoints, bpf.Traffic)
		}},
		{"it uses other maps", func(t *testing.T, n *node, dir string) {
			n.plant(t, dir, func(*ebpf.CollectionSpec) {}, bpf.Links, bpf.Traffic)
		}},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			n := newNode(t)
			before := n.datapath.Status()
			n.stop(t)
			row.tamper(t, n, filepath.Join(n.cfg.BPFRoot, "programs", before.Digest))
			n.start(t)
			after := n.datapath.Status()
			if after.Adopted {
				t.Errorf("adopted %+v", after)
			}
			if diff := cmp.Diff(tags(before.Programs), tags(after.Programs)); diff != "" {
				t.Errorf("tags (-before +after):\n%s", diff)
			}
			n.stop(t)
			n.start(t)
			if !n.datapath.Status().Adopted {
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
		m, err := ebpf.LoadPinnedMap(filepath.Join(n.cfg.BPFRoot, "maps", name), nil)
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

func TestRootMustBeOnABPFFileSystem(t *testing.T) {
	n := &node{Namespace: testutil.NetNS(t), cfg: datapath.DefaultConfig()}
	for _, root := range []string{t.TempDir(), filepath.Join(t.TempDir(), "not", "there")} {
		n.cfg.BPFRoot = root
		err := n.tryStart(t, func(*datapath.Datapath) {})
		if !errors.Is(err, datapath.ErrNoBPFFS) || !strings.Contains(err.Error(), "mount -t bpf bpf "+filepath.Dir(root)) {
			t.Errorf("error %v, want %v, and how to mount one", err, datapath.ErrNoBPFFS)
		}
	}
}
