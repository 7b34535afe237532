package datapath

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/datapath/loader"
	"porin.dev/porin/internal/netns"
)

// probeAttach attaches the programs to the lo of a temporary network namespace, so that a node learns at
// start, and not from its first container, that its kernel lacks clsact or BPF classifiers.
func probeAttach(programs *loader.Programs) error {
	const loopback = 1 // the index of lo in every network namespace
	err := netns.InNew(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		if err := newHostPrograms(programs, handle, handle).Update(Entry{Link: loopback}); err != nil {
			return err
		}
		here := func(f func() error) error { return f() }
		return errors.Join(
			newUplinkHook(uplinkEgress, programs.ToUplink, handle, here, loader.HasTCX()).attach(loopback),
			newUplinkHook(uplinkIngress, programs.FromUplink, handle, here, loader.HasTCX()).attach(loopback),
		)
	})
	if err != nil {
		return fmt.Errorf("attach BPF programs to a link for a trial: %w", err)
	}
	return nil
}
