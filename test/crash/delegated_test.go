package crash

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"porin.dev/porin/internal/testutil"
)

// delegated is the operation with the addresses of host-local, whose effects are points, too. In the end it has none in
// use.
func delegated(of func(*scene) operation) func(*scene) operation {
	return func(s *scene) operation {
		reservations := s.delegate()
		o := of(s)
		judge := o.judge
		o.judge = func() error { return errors.Join(judge(), nothingReserved(reservations)) }
		return o
	}
}

// delegate has the runtime take addresses from host-local from now on, and returns the folder where that keeps them.
func (s *scene) delegate() string {
	s.t.Helper()
	bin, data := s.node.PluginDir, filepath.Join(s.node.Dir, "ipam")
	s.node.InstallPlugin(s.t, filepath.Join(testutil.Build(s.t), "porin-cni"))
	s.node.InstallPlugin(s.t, testutil.IPAMPlugin(s.t, "host-local"))
	ipam := map[string]any{"type": "host-local", "dataDir": data, "ranges": []any{
		[]any{map[string]any{"subnet": "10.200.1.0/24"}}, []any{map[string]any{"subnet": "fd00:200:1::/64"}},
	}}
	s.cni = s.node.NewCNI(s.t, testutil.CNIConfig{Bin: bin, Wrap: s.plugins.wrapArmed, Plugin: map[string]any{"ipam": ipam}})
	return filepath.Join(data, "porin")
}

// nothingReserved checks that no address is host-local's to give back: it has a file for each.
func nothingReserved(dir string) error {
	files, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was never called
	}
	errs := []error{err}
	for _, file := range files {
		if _, err := netip.ParseAddr(file.Name()); err == nil {
			owner, _ := os.ReadFile(filepath.Join(dir, file.Name()))
			errs = append(errs, fmt.Errorf("host-local holds %s for %.12s", file.Name(), owner))
			errs = append(errs, os.Remove(filepath.Join(dir, file.Name()))) // once is enough
		}
	}
	return errors.Join(errs...)
}
