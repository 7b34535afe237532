package endpointmanager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"porin.dev/porin/cells/endpoint"
	"porin.dev/porin/internal/deletionrecords"
	"porin.dev/porin/internal/task"
)

// deletionsAtOnce is how many endpoints are taken down side by side when there are many: their writes to the ledger go
// together.
const deletionsAtOnce = 64

// recordsTimeout bounds how long deletion records are processed at a time: plugins that do a DEL without the agent wait
// for the lock of the records. A deletion that takes longer goes on, and its record stays for the next time.
const recordsTimeout = 3 * time.Second

// deletionRecords does the deletions that the plugin left as files, because no agent answered it.
type deletionRecords struct {
	m    *manager
	path string
	task *task.Task
}

// deleteRecorded does the deletions on record. A record whose deletion fails stays in the folder for the next time. A
// record that cannot be read is set aside there, and reported.
func (d *deletionRecords) deleteRecorded(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recordsTimeout)
	defer cancel()
	done, err := deletionrecords.Drain(d.path, func(records []deletionrecords.Record) []error {
		errs := make([]error, len(records))
		var group errgroup.Group
		group.SetLimit(deletionsAtOnce)
		byContainer := map[string][]int{} // which are worked off one after the other
		for i, r := range records {
			byContainer[r.ContainerID] = append(byContainer[r.ContainerID], i)
		}
		for _, id := range slices.Sorted(maps.Keys(byContainer)) { // as the ledger's keys, so that writes to it go together
			group.Go(func() error {
				for _, i := range byContainer[id] {
					errs[i] = errors.Join(d.delete(ctx, records[i]).Errors...)
				}
				return nil
			})
		}
		_ = group.Wait()
		return errs
	})
	if done > 0 {
		d.m.log.Info("deletions on record done", "records", done)
	}
	return err
}

// beforeThisBoot is when a deletion of an earlier boot began, by the clock of this one: before any ADD.
const beforeThisBoot = time.Nanosecond

// delete passes over an attachment that began a new life after the recorded deletion did. When the plugin did not
// say when that was, it was before this agent.
func (d *deletionRecords) delete(ctx context.Context, rec deletionrecords.Record) DeleteResult {
	began := d.m.startTime(time.Duration(rec.Began))
	if here, err := d.m.here(); err == nil && rec.Boot != "" && rec.Boot != here.Boot { // whose times mean nothing
		began = beforeThisBoot
	}
	cfg := endpoint.DeleteConfig{
		Began: began, Sweep: true, Network: rec.Network, NetNS: rec.NetNS,
		IPAM: endpoint.IPAMPlugin{Type: rec.IPAM, Config: rec.Config, Args: rec.Args},
	}
	a := endpoint.Attachment{ContainerID: rec.ContainerID, IfName: rec.IfName}
	d.m.registry.rememberDeletionRecord(a, cfg.Began)
	if rec.IfName == "" {
		return d.m.removeContainer(ctx, rec.ContainerID, cfg)
	}
	return d.m.removeEndpoint(ctx, a, cfg, startWatch(endpoint.OperationDel))
}

// deleteOrWarn logs a failure, where no caller waits for the outcome.
func (d *deletionRecords) deleteOrWarn(ctx context.Context) {
	if err := d.deleteRecorded(ctx); err != nil {
		d.m.log.Error("deletion records are left, and will be tried again", "path", d.path, "error", err)
	}
}

// recordsInterval is how often the folder is looked at while the agent runs: a plugin whose DEL was not answered in
// time leaves a record, too. It doubles while records fail.
const recordsInterval = 5 * time.Second

func newDeletionRecords(m *manager) *deletionRecords {
	d := &deletionRecords{m: m, path: m.cfg.deletionsPath()}
	d.task = task.Every(m.log, task.Round{
		Name: "endpointmanager-deletion-records", Interval: recordsInterval, Later: true, Retry: recordsInterval, MaxRetry: maxRetryInterval,
		Run: func(ctx context.Context) error {
			if waiting, _, err := deletionrecords.Look(d.path); err == nil && len(waiting) == 0 {
				return nil
			}
			if err := d.deleteRecorded(ctx); err != nil {
				return fmt.Errorf("deletion records are left in %s: %w", d.path, err)
			}
			return nil
		},
	})
	return d
}

// Serving implements server.Watcher: a plugin may have left records between the first look at them and the moment the
// API served.
func (d *deletionRecords) Serving() { d.deleteOrWarn(context.Background()) }

// Stopping implements server.Watcher.
func (*deletionRecords) Stopping() {}
