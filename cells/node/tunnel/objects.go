package tunnel

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/rlimit"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/bpf"
)

// objects are the programs and maps, pinned below a folder: maps/NAME, and DIGEST/NAME for the programs.
type objects struct {
	owners, drops        *ebpf.Map
	toTunnel, fromTunnel *ebpf.Program
}

func (o *objects) close() {
	if o == nil {
		return
	}
	o.owners.Close()
	o.drops.Close()
	o.toTunnel.Close()
	o.fromTunnel.Close()
}

// digest names the compiled object and its configuration.
func digest() string {
	h := sha256.New()
	h.Write(bpf.TunnelObject())
	fmt.Fprintf(h, "gateway %s", v1.GatewayIPv4)
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// load takes over what is pinned, and makes and pins what is not.
func load(root string) (_ *objects, err error) {
	spec, err := bpf.Tunnel()
	if err == nil {
		err = errors.Join(spec.Variables[bpf.GatewayIPv4].Set(v1.GatewayIPv4.As4()), rlimit.RemoveMemlock())
	}
	if err != nil {
		return nil, err
	}
	maps, programs := filepath.Join(root, "maps"), filepath.Join(root, digest())
	for _, dir := range []string{maps, programs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make a folder for BPF pins: %w", err)
		}
	}
	o := &objects{}
	defer func() {
		if err != nil {
			o.close()
		}
	}()
	for name, to := range map[string]**ebpf.Map{bpf.Owners: &o.owners, bpf.TunnelDrops: &o.drops} {
		if *to, err = openMap(filepath.Join(maps, name), spec.Maps[name]); err != nil {
			return nil, fmt.Errorf("open map %s: %w", name, err)
		}
	}
	if o.adopt(programs) {
		return o, nil
	}
	return o, o.loadPrograms(spec, programs)
}

// openMap makes the map when there is none that fits: its content is written again before a program sees it.
func openMap(pin string, spec *ebpf.MapSpec) (*ebpf.Map, error) {
	m, err := ebpf.LoadPinnedMap(pin, nil)
	if err == nil {
		if err = spec.Compatible(m); err == nil {
			return m, nil
		}
		m.Close()
		err = os.Remove(pin)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if m, err = ebpf.NewMap(spec); err != nil {
		return nil, err
	}
	if err := m.Pin(pin); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// byName are the programs.
func (o *objects) byName() map[string]**ebpf.Program {
	return map[string]**ebpf.Program{bpf.ToTunnel: &o.toTunnel, bpf.FromTunnel: &o.fromTunnel}
}

// adopt takes over the programs that are pinned in the folder of the digest, if they are on our maps.
func (o *objects) adopt(dir string) bool {
	for name, to := range o.byName() {
		p, err := ebpf.LoadPinnedProgram(filepath.Join(dir, name), nil)
		if err == nil && !o.isOurs(p, name) {
			p.Close()
			err = fs.ErrNotExist
		}
		if err != nil {
			o.toTunnel.Close()
			o.fromTunnel.Close()
			o.toTunnel, o.fromTunnel = nil, nil
			return false
		}
		*to = p
	}
	return true
}

func (o *objects) isOurs(p *ebpf.Program, name string) bool {
	info, err := p.Info()
	if err != nil || info.Name != name || info.Type != ebpf.SchedCLS {
		return false
	}
	used, _ := info.MapIDs()
	has := map[ebpf.MapID]bool{}
	for _, id := range used {
		has[id] = true
	}
	for _, m := range []*ebpf.Map{o.owners, o.drops} {
		info, err := m.Info()
		if err != nil {
			return false
		}
		if id, _ := info.ID(); !has[id] {
			return false
		}
	}
	return true
}

func (o *objects) loadPrograms(spec *ebpf.CollectionSpec, dir string) error {
	if features.HaveProgramHelper(ebpf.SchedCLS, asm.FnSkbSetTunnelKey) != nil {
		return ErrUnsupported
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		MapReplacements: map[string]*ebpf.Map{bpf.Owners: o.owners, bpf.TunnelDrops: o.drops},
	})
	if err != nil {
		return fmt.Errorf("load the programs of the tunnel: %w", err)
	}
	defer collection.Close()
	for name, to := range o.byName() {
		*to = collection.DetachProgram(name)
		pin := filepath.Join(dir, name)
		if err := os.Remove(pin); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := (*to).Pin(pin); err != nil {
			return fmt.Errorf("pin BPF program %s: %w", name, err)
		}
	}
	return nil
}

// removeOthers removes the pins of programs of other versions.
func removeOthers(root string) error {
	entries, err := os.ReadDir(root)
	for _, entry := range entries {
		if name := entry.Name(); name != "maps" && name != digest() {
			err = errors.Join(err, os.RemoveAll(filepath.Join(root, name)))
		}
	}
	return err
}
