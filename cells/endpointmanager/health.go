package endpointmanager

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"porin.dev/porin/cells/capacity"
	"porin.dev/porin/cells/endpointmanager/ledger"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/deletionrecords"
)

// health is the manager's condition. It is a supervisor.HealthReporter.
type health struct{ m *manager }

func newHealth(m *manager) health { return health{m} }

// Condition implements supervisor.HealthReporter. The agent goes on without the file of its ledger, but its writes are
// lost with it. A restart makes a new ledger, and holds the attachments that it finds. Beside another file, which may
// lack endpoints, a restart would remove them: an administrator has to look at that, and at held attachments.
func (h health) Condition() supervisor.Condition {
	c := supervisor.Condition{Cell: "endpointmanager", State: supervisor.OK}
	if h.m.registry.refusal() != nil {
		return c
	}
	switch lost := checkLedger(h.m); {
	case errors.Is(lost, ledger.ErrRemoved):
		c.State, c.Reason = supervisor.Failing, lost.Error()
	case lost != nil:
		c.State, c.Reason = supervisor.Degraded, lost.Error()
	default:
		if held := len(h.m.Held()); held > 0 {
			c.Reason = fmt.Sprintf("%d attachments are held: porin doctor says why", held)
		}
	}
	return c
}

// checkLedger returns why the file of the ledger is lost, and logs it the first time.
func checkLedger(m *manager) error {
	err := m.ledger.Lost()
	was := false
	m.registry.withLock(func() { was, m.registry.lost = m.registry.lost, err != nil })
	switch {
	case err != nil && !was:
		m.log.Error("the ledger is lost: put its file back; or move away what has its place and restart the agent, which then holds the attachments that it finds", "error", err)
	case err == nil && was:
		m.log.Info("the ledger is there again")
	}
	if err != nil {
		return fmt.Errorf("the ledger is lost: %w", err)
	}
	return nil
}

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
	// Deletion records are there while no agent runs. One that is left when it serves could not be processed.
	waiting, _, err := deletionrecords.Look(r.m.cfg.deletionsPath())
	if len(waiting) > 0 {
		err = fmt.Errorf("%d deletions that were asked for without an agent are not done: porin doctor says why", len(waiting))
	}
	return []capacity.Resource{
		r.ledger(),
		{Name: "endpoint-numbers", Used: int64(used), Capacity: most, Reserve: max(1, most/100)},
		{Name: "deletion-records", Err: err},
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
