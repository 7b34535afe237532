package datapath

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/internal/nl"
	"porin.dev/porin/internal/reconcile"
)

// findings compares the devices with what is required.
func (u *uplinks) findings() (findings []doctor.Finding, err error) {
	required, known := u.isRequired()
	if !known {
		return nil, nil
	}
	u.netlink.Lock()
	defer u.netlink.Unlock()
	if u.handle == nil {
		return nil, ErrNotStarted
	}
	links, err := nl.Dump(u.handle.LinkList)
	for _, l := range links {
		if !isUplink(l) {
			continue
		}
		found, programErr := u.hook.find(l.Attrs().Index)
		err = errors.Join(err, programErr)
		if finding, ok := u.finding(l, found, required); ok && programErr == nil {
			findings = append(findings, finding)
		}
	}
	return findings, ignoreInterrupted(err)
}

// finding returns what is wrong with a device, whose program has the ID found; 0 is no program.
func (u *uplinks) finding(l netlink.Link, found uint32, required bool) (f doctor.Finding, ok bool) {
	index, name := l.Attrs().Index, l.Attrs().Name
	f = doctor.Finding{
		Subject: fmt.Sprintf("program %s on link %s, index %d", u.side.program, name, index),
		Repair:  func(context.Context) error { return u.repair(l) },
	}
	switch {
	case required && found == 0:
		f.Kind, f.Detail = u.side.missing, reconcile.Missing
	case required && found != u.programID:
		f.Kind, f.Detail = u.side.missing, fmt.Sprintf("%d instead of %d", found, u.programID)
	case !required && found != 0:
		f.Kind, f.Detail = programOrphan, u.side.orphaned
	}
	return f, f.Kind != ""
}

// repair returns why the device refuses the program, if it does.
func (u *uplinks) repair(l netlink.Link) error {
	if err := u.reconcileLink(l); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if reason := u.refusals[l.Attrs().Index]; reason != "" {
		return errors.New(reason)
	}
	return nil
}
