package datapath

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"porin.dev/porin/cells/doctor"
)

// ofTheNode finds what has to do with no endpoint. It goes on after what could not be read.
func (c *Checker) ofTheNode(judged []judgement) ([]doctor.Finding, error) {
	pinned, pinnedErr := c.datapath.strayPins()
	loaded, loadedErr := c.datapath.strayLoaded(judged)
	lost, lostErr := c.datapath.lostPins()
	sysctls, sysctlsErr := c.datapath.routerOff()
	return slices.Concat(pinned, loaded, lost, sysctls), errors.Join(pinnedErr, loadedErr, lostErr, sysctlsErr)
}

// strayPins are the pins below the root that this agent has no use for.
func (d *Datapath) strayPins() (findings []doctor.Finding, err error) {
	digests, digestsErr := d.loader.strayDigests(d.Status().Digest)
	for _, digest := range digests {
		findings = append(findings, doctor.Finding{
			Kind: programOrphan, Subject: "pinned programs " + digest, Detail: "they are of another agent than this one",
			Repair: func(context.Context) error { return d.unpinPrograms(digest) },
		})
	}
	maps, mapsErr := d.loader.strayMaps()
	for _, pin := range maps {
		path := filepath.Join(d.loader.cfg.BPFRoot, pin)
		findings = append(findings, doctor.Finding{
			Kind: mapOrphan, Subject: "pinned map " + pin, Detail: path + " is no map of this agent",
			Repair: func(context.Context) error { return absentFile(os.Remove(path)) },
		})
	}
	return findings, errors.Join(digestsErr, mapsErr)
}

// strayLoaded are programs on our maps that are neither this agent's nor attached to one of the links.
func (d *Datapath) strayLoaded(judged []judgement) (findings []doctor.Finding, err error) {
	inUse := map[uint32]bool{}
	for _, p := range d.Status().Programs {
		inUse[p.ID] = true
	}
	for _, j := range judged {
		for _, id := range j.observed.programs {
			inUse[uint32(id)] = true
		}
	}
	var programs []uint32
	err = d.maps.use(func(m *pinnedMaps) error {
		programs, err = strayPrograms(m, inUse)
		return err
	})
	for _, id := range programs {
		findings = append(findings, doctor.Finding{
			Kind: programOrphan, Subject: fmt.Sprintf("program %d", id),
			Detail: "it is loaded on the maps of this agent, and neither pinned nor attached to an endpoint",
		})
	}
	return findings, err
}

// routerOff are the sysctls that are not as a router needs them. IPv6 counts since an endpoint has had an IPv6 address.
func (d *Datapath) routerOff() (findings []doctor.Finding, err error) {
	router := d.links.router
	if router == nil {
		return nil, ErrNotStarted
	}
	off, err := router.off()
	for _, sysctl := range off {
		name := strings.ReplaceAll(sysctl, "/", ".")
		findings = append(findings, doctor.Finding{
			Kind: forwardingOff, Subject: name, Detail: name + " is 0 instead of 1",
			Repair: func(context.Context) error { return router.repair(sysctl) },
		})
	}
	return findings, err
}

// unpinPrograms removes the pins of a digest unless they are those of this agent.
func (d *Datapath) unpinPrograms(digest string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded == nil || d.loaded.digest == digest {
		return nil
	}
	_, err := removePins(filepath.Join(d.loader.cfg.programsDir(), digest))
	return err
}
