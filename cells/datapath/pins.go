package datapath

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"

	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/cells/doctor"
)

// pins are the programs and maps below the BPF root. It is [Pins].
type pins struct {
	root   string
	loader *loader.Loader

	mu      sync.Mutex      // guards the field below; held while pins are read or removed
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

// repair is a repair that needs the objects of its moment: the agent may have been restarted.
func (p *pins) repair(f func(*loader.Objects) error) func(context.Context) error {
	return func(context.Context) error { return p.use(f) }
}

func (p *pins) PrunePins() (removed []string, err error) {
	err = p.use(func(objects *loader.Objects) error {
		stale, err := p.loader.StalePins(objects)
		for _, pin := range stale {
			if removeErr := p.loader.RemovePin(pin); removeErr != nil {
				err = errors.Join(err, removeErr)
				continue
			}
			removed = append(removed, stalePinText(pin))
		}
		return err
	})
	return removed, err
}

func stalePinText(pin loader.StalePin) string {
	if pin.Program {
		return "pinned programs " + filepath.Base(pin.Path)
	}
	return "pinned map " + pin.Path
}

// findings compares what is pinned with what this agent uses.
func (p *pins) findings() (findings []doctor.Finding, err error) {
	err = p.use(func(objects *loader.Objects) error {
		stale, staleErr := p.loader.StalePins(objects)
		for _, pin := range stale {
			findings = append(findings, p.staleFinding(pin))
		}
		missing, missingErr := p.loader.MissingPins(objects)
		for _, pin := range missing {
			findings = append(findings, doctor.Finding{
				Kind: pinMissing, Subject: "pin " + pin.Path, Detail: pin.Detail,
				Repair: p.repair(func(objects *loader.Objects) error { return p.loader.PinAgain(objects, pin) }),
			})
		}
		return errors.Join(staleErr, missingErr)
	})
	return findings, err
}

func (p *pins) staleFinding(pin loader.StalePin) doctor.Finding {
	f := doctor.Finding{
		Kind: mapOrphan, Subject: stalePinText(pin), Detail: filepath.Join(p.root, pin.Path) + " is no map of this agent",
		Repair: p.repair(func(objects *loader.Objects) error {
			stale, err := p.loader.StalePins(objects)
			if slices.Contains(stale, pin) {
				err = errors.Join(err, p.loader.RemovePin(pin))
			}
			return err
		}),
	}
	if pin.Program {
		f.Kind, f.Detail = programOrphan, "they are of another agent than this one"
	}
	return f
}

// programFindings are programs on our maps that are neither this agent's nor attached to a device.
func (p *pins) programFindings(links *nodeLinks) (findings []doctor.Finding, err error) {
	var stale []uint32
	err = p.use(func(objects *loader.Objects) error {
		stale, err = p.loader.StalePrograms(objects)
		return err
	})
	if len(stale) == 0 || err != nil {
		return nil, err
	}
	attached, err := links.attachedPrograms()
	for _, id := range stale {
		if attached[id] {
			continue
		}
		findings = append(findings, doctor.Finding{
			Kind: programOrphan, Subject: fmt.Sprintf("program %d", id),
			Detail: "it is loaded on the maps of this agent, and neither pinned nor attached to a device",
		})
	}
	return findings, err
}
