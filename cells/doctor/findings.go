package doctor

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	v1 "porin.dev/porin/api/v1"
	"porin.dev/porin/internal/fault"
)

// minGap is the least time between two examinations for both to count: less, and they may have seen the same passing
// state.
const minGap = time.Second

// findings are the known disagreements, kept from one examination to the next.
type findings struct {
	repairs bool          // the agent repairs on its own
	pause   time.Duration // after the first repair of a finding, before the second

	mu       sync.Mutex // guards the fields below
	records  map[key]*record
	failures map[string]string    // by owner, the error of its last examination
	events   map[string][]Finding // by owner, of kinds with an Event, as its last examination found them
}

func newFindings(cfg Config) *findings {
	return &findings{
		repairs: cfg.Repair, pause: max(cfg.Interval, minGap), records: map[key]*record{}, failures: map[string]string{},
		events: map[string][]Finding{},
	}
}

// key is what makes two findings the same.
type key struct{ owner, kind, subject string }

// record is one finding.
type record struct {
	v1.Finding
	repair    func(context.Context) error
	about     string    // as its kind says
	seen      time.Time // the last examination that found it
	counted   time.Time // the last counted one
	repaired  time.Time // when the last repair ended
	tries     int       // repairs so far
	notBefore time.Time // no repair earlier
	due       bool      // found twice, and again since the last repair
}

// change is what is different after an examination by one checker.
type change struct {
	owner       string
	added, gone []v1.Finding
	failed      error // nil when it failed in the same way before
}

// update records the result of an examination of everything. After a failure, missing findings may still be there.
func (fs *findings) update(result checkResult, now time.Time) (c change) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	c.owner = result.owner
	found := map[key]bool{}
	for _, f := range result.found {
		k := key{result.owner, f.Kind, f.Subject}
		if found[k] {
			continue
		}
		found[k] = true
		r, known := fs.records[k]
		if !known {
			r = &record{Finding: v1.Finding{Since: now}}
			fs.records[k] = r
		}
		r.update(f, result, now, fs.repairs)
		if !known {
			c.added = append(c.added, r.Finding)
		}
	}
	text := fault.Text(result.err)
	if text != fs.failures[c.owner] {
		c.failed = result.err
	}
	fs.failures[c.owner] = text
	if result.err != nil {
		return c
	}
	for k, r := range fs.records {
		if k.owner == c.owner && !found[k] {
			c.gone = append(c.gone, r.Finding)
			delete(fs.records, k)
		}
	}
	slices.SortFunc(c.gone, byName)
	fs.events[c.owner] = nil
	for _, f := range slices.Concat(result.found, result.notes) {
		if result.kinds[f.Kind].Event {
			fs.events[c.owner] = append(fs.events[c.owner], f)
		}
	}
	return c
}

func (r *record) update(f Finding, result checkResult, now time.Time, repairs bool) {
	describe(&r.Finding, f, result, repairs)
	r.repair, r.about, r.seen = f.Repair, result.kinds[f.Kind].About, now
	if r.Times > 0 && now.Sub(r.counted) < minGap {
		return
	}
	r.Times++
	r.counted = now
	r.due = repairs && r.repair != nil && r.Times > 1 && !now.Before(r.notBefore)
}

// describe says that a person has to repair it also when the agent may not.
func describe(to *v1.Finding, f Finding, result checkResult, repairs bool) {
	to.Kind, to.Owner, to.Subject, to.Endpoint, to.Detail = f.Kind, result.owner, f.Subject, f.Endpoint, f.Detail
	to.Repair, to.Manual = result.kinds[f.Kind].Repair, f.Repair == nil || !repairs
}

// describe returns what was found, with what is known of it, and records nothing.
func (fs *findings) describe(result checkResult, found []Finding, now time.Time) (list []v1.Finding) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, f := range found {
		finding := v1.Finding{Since: now, Times: 1}
		if r := fs.records[key{result.owner, f.Kind, f.Subject}]; r != nil {
			finding = r.Finding
		}
		describe(&finding, f, result, fs.repairs)
		list = append(list, finding)
	}
	slices.SortFunc(list, byName)
	return list
}

// list returns the chosen findings, by kind and subject.
func (fs *findings) list(chosen func(*record) bool) (list []v1.Finding) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, r := range fs.records {
		if chosen(r) {
			list = append(list, r.Finding)
		}
	}
	slices.SortFunc(list, byName)
	return list
}

func byName(a, b v1.Finding) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Subject, b.Subject))
}

// count returns the number of findings of each kind, also where it is 0, without subjects. owners has the owner of each
// kind.
func (fs *findings) count(owners map[string]string) map[key]int {
	counts := map[key]int{}
	for name, owner := range owners {
		counts[key{owner: owner, kind: name}] = 0
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for k := range fs.records {
		counts[key{owner: k.owner, kind: k.kind}]++
	}
	return counts
}
