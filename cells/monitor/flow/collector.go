package flow

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/fx"

	"porin.dev/porin/bpf/abi"
	"porin.dev/porin/cells/monitor/stream"
	"porin.dev/porin/cells/policy"
	"porin.dev/porin/cells/proxy/accesslog"
	"porin.dev/porin/internal/boottime"
	"porin.dev/porin/internal/task"
)

const (
	readInterval = 100 * time.Millisecond
	readTime     = 20 * time.Millisecond // of each interval, at most: the rest waits, and what the datapath has no room for is lost
)

// Collector reads what the datapath tells, and keeps it for clients.
type Collector struct {
	source       Source
	requests     *accesslog.Log
	proxy        policy.Proxy
	translations Translations
	policies     Policies
	names        Names
	directory    *directory
	log          *slog.Logger

	ring     *stream.Ring[record]
	recent   *recentFlows
	stopping context.Context // ends when the agent begins to stop
	stop     context.CancelFunc

	reading         sync.Mutex // held by the one who reads, and guards the fields below
	unread          uint64     // events that the source had lost at the last reading
	untranslatable  bool       // the log was told
	lostInThisRound uint64

	mu     sync.Mutex // guards the field below
	counts Counts
}

// Counts are totals since the agent's start.
type Counts struct {
	Verdicts [verdicts]uint64
	Drops    map[abi.DropReason]uint64 // of those denied and dropped
	Lost     uint64
}

// Params is what a [Collector] needs.
type Params struct {
	fx.In

	Source       Source
	Requests     *accesslog.Log // of the proxy
	Proxy        policy.Proxy
	Translations Translations
	Policies     Policies
	Names        Names
	Endpoints    Endpoints
	Log          *slog.Logger
}

// New builds a collector that has read nothing yet.
func New(cfg Config, p Params) (*Collector, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &Collector{
		source: p.Source, requests: p.Requests, proxy: p.Proxy, translations: p.Translations, policies: p.Policies, names: p.Names, log: p.Log,
		directory: newDirectory(p.Endpoints, boottime.Now),
		ring:      stream.NewRing[record](cfg.Flows), recent: newRecentFlows(recentCount),
		counts: Counts{Drops: map[abi.DropReason]uint64{}},
	}
	c.stopping, c.stop = context.WithCancel(context.Background())
	return c, nil
}

func newTask(c *Collector) *task.Task {
	return task.Every(c.log, task.Round{
		Name: "monitor-read-flows", Interval: readInterval, Run: c.read, Retry: readInterval, MaxRetry: 10 * time.Second,
	})
}

// read takes what the datapath has told since the last time.
func (c *Collector) read(context.Context) error {
	c.reading.Lock()
	defer c.reading.Unlock()
	began, offset := time.Now(), wallClockOffset()
	var batch []record
	lost, err := c.source.Read(func(e *abi.FlowEvent) bool {
		if r, ok := c.recordOf(e); ok {
			r.time = int64(e.Time) + offset
			batch = append(batch, r)
		}
		return time.Since(began) < readTime
	})
	requests, missed := c.readRequests()
	if len(requests) > 0 {
		batch = append(batch, requests...)
		slices.SortStableFunc(batch, func(x, y record) int { return cmp.Compare(x.time, y.time) })
	}
	if err == nil {
		missed += lost - c.unread + c.lostInThisRound
		c.unread, c.lostInThisRound = lost, 0
	}
	if missed > 0 {
		batch = append(batch, record{time: time.Now().UnixNano(), lost: missed})
	}
	c.count(batch)
	c.recent.add(batch)
	batch = slices.DeleteFunc(batch, func(r record) bool { return r.onlyRecent })
	if len(batch) > 0 {
		c.ring.Add(batch...)
	}
	return err
}

// readNow reads the kernel's flows up to now, too. When it fails, the task's next round reports that.
func (c *Collector) readNow() { _ = c.read(context.Background()) }

// wallClockOffset is what CLOCK_BOOTTIME lacks to Unix time, in ns.
func wallClockOffset() int64 { return time.Now().UnixNano() - int64(boottime.Now()) }

func (c *Collector) count(batch []record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range batch {
		r := &batch[i]
		if r.lost > 0 {
			c.counts.Lost += r.lost
			continue
		}
		if r.request != nil { // the proxy counts them
			continue
		}
		c.counts.Verdicts[r.verdict]++
		if reason := r.dropReason(); reason != abi.DropNone {
			c.counts.Drops[reason]++
		}
	}
}

// Counts returns the totals.
func (c *Collector) Counts() Counts {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.counts
	out.Drops = maps.Clone(c.counts.Drops)
	return out
}

// Recent implements [policy.Flows].
func (c *Collector) Recent() (flows []policy.Flow, since time.Time) {
	c.readNow()
	return c.recent.list(c.ownerOf)
}

// Serving is server.Watcher.
func (c *Collector) Serving() {}

// Stopping is server.Watcher. The streams end.
func (c *Collector) Stopping() {
	c.ring.Close()
	c.stop()
}
