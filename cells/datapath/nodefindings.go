package datapath

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"porin.dev/porin/cells/doctor"
)

// ofTheNode finds what has to do with no endpoint.
func (c *Checker) ofTheNode(all *inventory) (findings []doctor.Finding) {
	d := c.datapath
	for _, digest := range all.digests {
		findings = append(findings, doctor.Finding{
			Kind: programOrphan, Subject: "pinned programs " + digest, Detail: "they are of another agent than this one",
			Repair: func(context.Context) error { return d.unpinPrograms(digest) },
		})
	}
	for _, id := range all.programs {
		findings = append(findings, doctor.Finding{
			Kind: programOrphan, Subject: fmt.Sprintf("program %d", id),
			Detail: "it is loaded on the maps of this agent, and neither pinned nor attached to an endpoint",
		})
	}
	for _, pin := range all.maps {
		path := filepath.Join(d.loader.cfg.BPFRoot, pin)
		findings = append(findings, doctor.Finding{
			Kind: mapOrphan, Subject: "pinned map " + pin, Detail: path + " is no map of this agent",
			Repair: func(context.Context) error { return absentFile(os.Remove(path)) },
		})
	}
	for _, sysctl := range all.routerOff {
		findings = append(findings, doctor.Finding{
			Kind: forwardingOff, Subject: sysctl, Detail: sysctl + " is 0 instead of 1",
			Repair: func(context.Context) error { return d.inNamespace(enableForwarding) },
		})
	}
	return findings
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
