package capacity

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/cells/doctor"
	"porin.dev/porin/cells/metrics"
	"porin.dev/porin/cells/supervisor"
	"porin.dev/porin/internal/task"
)

// Capacity samples the resources of all sources. Its methods may be called concurrently.
type Capacity struct {
	sources []Source

	mu      sync.Mutex // guards the fields below
	sampled []Resource // at the last sample
	broken  string     // at the last sample: see Broken
}

// New makes a Capacity without samples.
func New(sources ...Source) *Capacity {
	return &Capacity{sources: sources}
}

const sampleInterval = 10 * time.Second

// Sampler returns the task that takes a sample each 10 seconds. The first one is taken at once.
func (c *Capacity) Sampler(log *slog.Logger) *task.Task {
	return task.Every(log, task.Round{Name: "capacity-sample", Interval: sampleInterval, Run: func(context.Context) error { c.sample(log); return nil }})
}

func (c *Capacity) sample(log *slog.Logger) {
	found := c.read()
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.broken
	c.sampled, c.broken = found, ""
	for _, r := range found {
		if r.Vital && r.Err != nil {
			c.broken = r.Name + ": " + r.Err.Error()
			break
		}
	}
	if c.broken != "" && was == "" {
		log.Warn("no container can be attached", "reason", c.broken)
	}
}

// Broken says why no container can be attached, for a lasting reason, as of the last sample; "" when nothing prevents
// it. It does not block.
func (c *Capacity) Broken() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

// Resources returns all resources as they are now, by name.
func (c *Capacity) Resources() []v1.Resource { return assess(c.read()) }

// lacking returns the resources that are not available now and that no other cell reports to the doctor.
func (c *Capacity) lacking() []v1.Resource {
	return assess(slices.DeleteFunc(c.read(), func(r Resource) bool {
		return r.shortage() == "" || r.Err != nil && r.Finding != ""
	}))
}

func (c *Capacity) read() (all []Resource) {
	byName := map[string]int{}
	for _, source := range c.sources {
		for _, r := range source.Resources() {
			i, known := byName[r.Name]
			if !known {
				byName[r.Name] = len(all)
				all = append(all, r)
				continue
			}
			all[i] = all[i].merge(r)
		}
	}
	slices.SortFunc(all, func(a, b Resource) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// assess says what is available.
func assess(found []Resource) []v1.Resource {
	all := []v1.Resource{}
	for _, r := range found {
		reason := r.shortage()
		all = append(all, v1.Resource{Name: r.Name, Used: r.Used, Quarantined: r.Quarantined, Capacity: r.Capacity, Available: reason == "", Reason: reason})
	}
	return all
}

// Report is server.StatusReporter.
func (c *Capacity) Report(status *v1.Status) { status.Resources = c.Resources() }

// Condition implements supervisor.HealthReporter: an agent that can attach no container is degraded.
func (c *Capacity) Condition() supervisor.Condition {
	if why := c.Broken(); why != "" {
		return supervisor.Condition{Cell: "capacity", State: supervisor.Degraded, Reason: "no container can be attached: " + why}
	}
	return supervisor.Condition{Cell: "capacity", State: supervisor.OK}
}

// lastSample returns the resources of the last sample, which the caller must not change.
func (c *Capacity) lastSample() []Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sampled
}

// runsOut is the kind of the doctor's note about a resource.
const runsOut = "resource-runs-out"

// checker notes what the next ADD will lack. It is no disagreement: only the node's administrator can repair it.
type checker struct{ capacity *Capacity }

func newChecker(c *Capacity) checker { return checker{c} }

// Owner implements doctor.Checker.
func (checker) Owner() string { return "capacity" }

// Kinds implements doctor.Checker.
func (checker) Kinds() []doctor.Kind {
	return []doctor.Kind{{
		Name: runsOut, Meaning: "an ADD needs it, and there is none left",
		Repair: "give the node more of it, such as a larger pool, or delete containers", Note: true, Event: true,
	}}
}

// Examine implements doctor.Checker.
func (c checker) Examine(_ context.Context, only string) (notes []doctor.Finding, err error) {
	if only != "" {
		return nil, nil
	}
	for _, r := range c.capacity.lacking() {
		notes = append(notes, doctor.Finding{Kind: runsOut, Subject: r.Name, Detail: r.Reason})
	}
	return notes, nil
}

// newCollector shows the last sample.
func newCollector(c *Capacity) *metrics.Values {
	v := metrics.NewValues("porin_resource_")
	used := v.Gauge("used", "How much is in use, or in quarantine, of what an ADD needs.", "resource")
	limit := v.Gauge("capacity", "How much there is of what an ADD needs; missing where it is not counted, or the node gets more by itself.", "resource")
	available := v.Gauge("available", "1 while the next ADD would find what it needs, else 0.", "resource")
	v.Read = func(ch chan<- prometheus.Metric) {
		for _, r := range c.lastSample() {
			used.Send(ch, float64(r.taken()), r.Name)
			if r.Capacity > 0 && !r.Refilled {
				limit.Send(ch, float64(r.Capacity), r.Name)
			}
			available.SendBool(ch, r.shortage() == "", r.Name)
		}
	}
	return v
}
