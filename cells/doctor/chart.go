package doctor

import (
	"slices"
	"sync"
	"time"

	v1 "porin.dev/porin/api/v1"
)

// lookGap is the least time between two examinations for both to count: less, and they may have seen the same passing
// state.
const lookGap = time.Second

// chart is what is known, from one examination to the next.
type chart struct {
	repairs bool          // of its own, and not by a person
	pause   time.Duration // after the first repair of a finding, before the second

	mu       sync.Mutex // guards the fields below
	records  map[key]*record
	failures map[string]string // by owner, the error of its last look
}

func newChart(cfg Config) *chart {
	return &chart{
		repairs: cfg.Repair, pause: max(cfg.Interval, lookGap), records: map[key]*record{}, failures: map[string]string{},
	}
}

// note takes in a look at everything. What a look that failed has not found may still be there.
func (c *chart) note(o opinion, now time.Time) (ch change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch.owner = o.owner
	seen := map[key]bool{}
	for _, f := range o.found {
		k := key{o.owner, f.Kind, f.Subject}
		if seen[k] {
			continue
		}
		seen[k] = true
		r, known := c.records[k]
		if !known {
			r = &record{Finding: v1.Finding{Since: now}}
			c.records[k] = r
		}
		r.find(f, o, now, c.repairs)
		if !known {
			ch.fresh = append(ch.fresh, r.Finding)
		}
	}
	ch.gone = c.forget(o, seen)
	ch.failed = c.failure(o)
	return ch
}

func (c *chart) forget(o opinion, seen map[key]bool) (gone []v1.Finding) {
	if o.err != nil {
		return nil
	}
	for k, r := range c.records {
		if k.owner == o.owner && !seen[k] {
			gone = append(gone, r.Finding)
			delete(c.records, k)
		}
	}
	slices.SortFunc(gone, byName)
	return gone
}

func (c *chart) failure(o opinion) error {
	before := c.failures[o.owner]
	delete(c.failures, o.owner)
	if o.err == nil {
		return nil
	}
	c.failures[o.owner] = o.err.Error()
	if o.err.Error() == before {
		return nil
	}
	return o.err
}
