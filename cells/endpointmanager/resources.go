package endpointmanager

import (
	"fmt"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/internal/deletionrecords"
)

// leastFree is the room that the ledger's file system must have left, in bytes: enough for the records of some hundred
// endpoints, so that STATUS turns before an ADD fails.
const leastFree = 512 << 10

// resources are the resources that an ADD takes from the manager. It is a capacity.Source.
type resources struct{ m *manager }

func newResources(m *manager) resources { return resources{m} }

// Resources implements capacity.Source.
func (r resources) Resources() []capacity.Resource {
	used, most := 0, int64(r.m.cfg.MaxEndpoints)
	r.m.registry.withLock(func() { used = r.m.registry.numbers.count() })
	return []capacity.Resource{
		r.ledger(),
		{Name: "endpoint-numbers", Used: int64(used), Capacity: most, Reserve: max(1, most/100)},
		{Name: "deletion-records", Err: r.deletionRecords()},
	}
}

// ledger is not vital when it is lost: an ADD succeeds, and a node that is NotReady would lose pods that run well. A
// kubelet restarts the agent for it.
func (r resources) ledger() capacity.Resource {
	ledger := capacity.Resource{Name: "ledger", Err: r.writable(), Vital: true}
	if ledger.Err == nil {
		if lost := checkLedger(r.m); lost != nil {
			ledger.Err, ledger.Vital, ledger.Finding = lost, false, kindLedgerLost
		}
	}
	return ledger
}

// writable finds out whether the ledger can be written.
func (r resources) writable() error {
	if r.m.registry.refusal() != nil {
		return ErrStopped
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(r.m.cfg.StateDir, &fs); err != nil {
		return fmt.Errorf("state-dir %s: %w", r.m.cfg.StateDir, err)
	}
	if err := checkRoom(r.m.cfg.StateDir, fs); err != nil {
		return err
	}
	return r.m.ledger.Probe()
}

// checkRoom takes a file system without any blocks for one without a limit: a tmpfs of size=0 and a ramfs count none.
func checkRoom(dir string, fs unix.Statfs_t) error {
	free := fs.Bavail * uint64(fs.Bsize)
	if fs.Blocks == 0 || free >= leastFree {
		return nil
	}
	return fmt.Errorf("%d KiB are free in %s, of %d that the ledger wants: free space there", free>>10, dir, leastFree>>10)
}

// deletionRecords are there while no agent runs. One that is left when it serves could not be processed.
func (r resources) deletionRecords() error {
	waiting, _, err := deletionrecords.Look(r.m.cfg.deletionsPath())
	if len(waiting) > 0 {
		return fmt.Errorf("%d deletions that were asked for without an agent are not done: porin doctor says why", len(waiting))
	}
	return err
}
