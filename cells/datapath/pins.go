package datapath

import (
	"sync"

	"porin.dev/porin/cells/datapath/loader"
)

// pins are the programs and maps below the BPF root. It is [Pins].
type pins struct {
	loader *loader.Loader

	mu      sync.Mutex      // guards the field below; held while pins are removed
	objects *loader.Objects // nil unless started
}

// set gives it what was loaded, or takes it away with nil.
func (p *pins) set(objects *loader.Objects) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.objects = objects
}

// use runs f with what was loaded.
func (p *pins) use(f func(*loader.Objects) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects == nil {
		return ErrNotStarted
	}
	return f(p.objects)
}

func (p *pins) PrunePins() (removed []string, err error) {
	err = p.use(func(objects *loader.Objects) (err error) {
		removed, err = p.loader.PrunePins(objects)
		return err
	})
	return removed, err
}
