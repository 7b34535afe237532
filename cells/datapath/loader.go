package datapath

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
)

// loader brings the programs and maps of one configuration into the kernel, or finds them there.
type loader struct {
	cfg    Config
	log    *slog.Logger
	object []byte // the compiled programs, which are half of the digest
}

// loaded is what a loader brought. close lets go of it; what is pinned or attached stays.
type loaded struct {
	digest   string
	maps     *pinnedMaps
	programs *pinnedPrograms
}

func (l *loaded) close() {
	l.programs.close()
	l.maps.close()
}

// load adopts what is pinned under the digest, or else loads and pins it, on the maps that are there. Maps of another
// size take their place when the programs on them are loaded, so a start that fails leaves them as they are.
func (l *loader) load() (*loaded, error) {
	out, err := l.prepare()
	if err != nil {
		return nil, err
	}
	if err := out.maps.publish(l.cfg); err != nil {
		out.close()
		return nil, err
	}
	return out, nil
}

// prepare is load without the maps being anybody's but ours.
func (l *loader) prepare() (_ *loaded, err error) {
	spec, err := l.spec()
	if err != nil {
		return nil, err
	}
	out := &loaded{digest: l.digest()}
	dir := filepath.Join(l.cfg.programsDir(), out.digest)
	if out.maps, err = openMaps(l.cfg.mapsDir(), spec); err != nil {
		return nil, err
	}
	if err = makeFolders(l.cfg.mapsDir(), dir); err == nil {
		out.programs, err = l.programs(dir, spec, out.maps)
	}
	if err != nil {
		out.maps.close()
		return nil, err
	}
	return out, nil
}

// programs adopts what is pinned in dir, or loads and pins it.
func (l *loader) programs(dir string, spec *ebpf.CollectionSpec, maps *pinnedMaps) (*pinnedPrograms, error) {
	programs, err := adopt(dir, spec, maps)
	if err == nil {
		return programs, nil
	}
	reason := err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		reason = "none are pinned"
	}
	l.log.Info("loading BPF programs", "digest", filepath.Base(dir), "reason", reason)
	return loadFresh(dir, spec, maps)
}

// spec is the object as it is configured.
func (l *loader) spec() (*ebpf.CollectionSpec, error) {
	spec, err := bpf.Endpoint()
	if err != nil {
		return nil, err
	}
	if err := spec.Variables[bpf.GatewayIPv4].Set(v1.GatewayIPv4.As4()); err != nil {
		return nil, fmt.Errorf("configure BPF programs: %w", err)
	}
	spec.Maps[bpf.Links].MaxEntries = l.cfg.MaxEndpoints
	spec.Maps[bpf.Traffic].MaxEntries = l.cfg.MaxEndpoints + 1 // and the node's own
	spec.Maps[bpf.Endpoints].MaxEntries = 2 * l.cfg.MaxEndpoints
	return spec, nil
}

// digest names object and configuration.
func (l *loader) digest() string {
	h := sha256.New()
	h.Write(l.object)
	fmt.Fprintf(h, "gateway %s endpoints %d", v1.GatewayIPv4, l.cfg.MaxEndpoints)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// loadFresh loads the programs and pins them in dir, in place of what is there.
func loadFresh(dir string, spec *ebpf.CollectionSpec, maps *pinnedMaps) (_ *pinnedPrograms, err error) {
	if err := errors.Join(probe(), rlimit.RemoveMemlock()); err != nil {
		return nil, err
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps.byName()})
	if err != nil {
		return nil, fmt.Errorf("load BPF programs: %w", err)
	}
	defer collection.Close()
	out := &pinnedPrograms{}
	defer func() {
		if err != nil {
			out.close()
		}
	}()
	for name, to := range out.byName() {
		if *to, _, err = newProgram(collection.DetachProgram(name)); err != nil {
			return nil, fmt.Errorf("describe BPF program %s: %w", name, err)
		}
	}
	if err := rehearse(out); err != nil {
		return nil, err
	}
	for name, p := range out.byName() {
		if err := repin((*p).Program, filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("pin BPF program %s: %w", name, err)
		}
	}
	return out, nil
}

// repin pins the program in place of what bears the name.
func repin(p *ebpf.Program, pin string) error {
	if err := os.Remove(pin); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return p.Pin(pin)
}

func (p *pinnedPrograms) byName() map[string]**program {
	return map[string]**program{bpf.FromPod: &p.fromPod, bpf.ToPod: &p.toPod}
}

// prune removes the pins of other digests.
func (l *loader) prune(digest string) (removed []string, err error) {
	entries, err := os.ReadDir(l.cfg.programsDir())
	if err != nil {
		return nil, fmt.Errorf("list pinned BPF programs: %w", err)
	}
	for _, entry := range entries {
		if entry.Name() == digest {
			continue
		}
		pins, pinsErr := removePins(filepath.Join(l.cfg.programsDir(), entry.Name()))
		for _, pin := range pins {
			removed = append(removed, "pinned program "+filepath.Join(entry.Name(), pin))
		}
		err = errors.Join(err, pinsErr)
	}
	return removed, err
}
