package endpointmanager

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"porin.dev/porin/internal/deletequeue"
)

// recordsAtOnce is how many deletion records are worked off side by side: their writes to the ledger go together.
const recordsAtOnce = 64

// recordsTimeout bounds how long deletion records are worked off at a time: plugins that do a DEL without the agent wait for the
// lock of the records. What is not deleted by then goes on, and its record stays for the next time.
const recordsTimeout = 3 * time.Second

// workOff deletes what the plugin was asked to delete while no agent answered. A record whose deletion fails stays in
// the folder for the next time; one that cannot be read is set aside there, and reported.
func (m *manager) workOff(ctx context.Context) error {
	if m.isSuspended() {
		return ErrSuspended
	}
	ctx, cancel := context.WithTimeout(ctx, recordsTimeout)
	defer cancel()
	done, err := deletequeue.Drain(m.cfg.deletionsPath(), func(records []deletequeue.Record) []error {
		errs := make([]error, len(records))
		var group errgroup.Group
		group.SetLimit(recordsAtOnce)
		for _, ofContainer := range byContainer(records) {
			group.Go(func() error {
				for _, i := range ofContainer {
					errs[i] = errors.Join(m.deleteRecorded(ctx, records[i]).Errors...)
				}
				return nil
			})
		}
		_ = group.Wait()
		return errs
	})
	if done > 0 {
		m.log.Info("deletion records worked off", "records", done)
	}
	return err
}

// ledgerOrder returns the places of the records in the order of the ledger's keys, so that what is written together is
// close together, and of one attachment in the order in which they are.
func ledgerOrder(records []deletequeue.Record) []int {
	order := make([]int, len(records))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(records[a].ContainerID, records[b].ContainerID), cmp.Compare(records[a].IfName, records[b].IfName))
	})
	return order
}

// byContainer groups the places of the records by container, in the order of [ledgerOrder]: records of one container are worked
// off one after the other.
func byContainer(records []deletequeue.Record) (groups [][]int) {
	for _, i := range ledgerOrder(records) {
		last := len(groups) - 1
		if last >= 0 && records[groups[last][0]].ContainerID == records[i].ContainerID {
			groups[last] = append(groups[last], i)
			continue
		}
		groups = append(groups, []int{i})
	}
	return groups
}

// deleteRecorded passes over an attachment that began a new life after the recorded deletion did. When the plugin did not
// say when that was, it was before this agent.
func (m *manager) deleteRecorded(ctx context.Context, rec deletequeue.Record) DeleteResult {
	cfg := DeleteConfig{
		Began: m.beganOfRecord(rec), Sweep: true, Network: rec.Network, NetNS: rec.NetNS,
		IPAM: IPAMPlugin{Type: rec.IPAM, Config: rec.Config, Args: rec.Args},
	}
	m.markRecorded(rec, cfg)
	if rec.IfName == "" {
		return m.deleteContainer(ctx, rec.ContainerID, cfg)
	}
	return m.deleteAttachment(ctx, Attachment{rec.ContainerID, rec.IfName}, cfg, startWatch(Del))
}

// markRecorded lets the workers know that a record asks for their end.
func (m *manager) markRecorded(rec deletequeue.Record, cfg DeleteConfig) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.roster.ofContainer(rec.ContainerID) {
		if (rec.IfName == "" || rec.IfName == w.attachment.IfName) && !w.outlives(cfg) {
			w.recorded.Store(true)
		}
	}
}

// workOffOrWarn is for where nobody waits for the outcome.
func (m *manager) workOffOrWarn(ctx context.Context) {
	if err := m.workOff(ctx); err != nil && !errors.Is(err, ErrSuspended) {
		m.log.Error("deletion records are left, and will be tried again", "path", m.cfg.deletionsPath(), "error", err)
	}
}

// beforeThisBoot is when a deletion of an earlier boot began, by the clock of this one: before any ADD.
const beforeThisBoot = time.Nanosecond

// beganOfRecord is when the recorded deletion began. A time of another boot means nothing.
func (m *manager) beganOfRecord(rec deletequeue.Record) time.Duration {
	if here, err := m.here(); err == nil && rec.Boot != "" && rec.Boot != here.Boot {
		return beforeThisBoot
	}
	return m.since(time.Duration(rec.Began))
}

// recordsInterval is how often the folder is looked at while the agent runs: a plugin whose DEL was not answered in time
// leaves a record, too. It doubles, up to maxRetryInterval, while records fail.
const recordsInterval = 5 * time.Second

func (m *manager) recordsLoop(ctx context.Context) {
	for wait := recordsInterval; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if waiting, _, err := deletequeue.Look(m.cfg.deletionsPath()); err == nil && len(waiting) == 0 {
			wait = recordsInterval
			continue
		}
		m.workOffOrWarn(ctx)
		wait = min(2*wait, maxRetryInterval)
	}
}

// latecomers works off the records that a plugin wrote between the first look at them and the moment the API served.
type latecomers struct{ m *manager }

func newLatecomers(m *manager) latecomers { return latecomers{m} }

// Serving implements server.Watcher.
func (l latecomers) Serving() { l.m.workOffOrWarn(context.Background()) }

// Stopping implements server.Watcher.
func (latecomers) Stopping() {}
